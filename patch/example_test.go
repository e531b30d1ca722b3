package patch_test

import (
	"bytes"
	"fmt"
	"log"
	"os"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
)

// A program is made to trace itself, and then what it was before.
func Example() {
	image, err := os.ReadFile("testdata/tiny") // any executable; a test's own is os.Args[0]
	if err != nil {
		log.Fatal(err)
	}
	f, err := elfio.Parse(image)
	if err != nil {
		log.Fatal(err)
	}
	sites, err := record.Find(f, record.Options{})
	if err != nil {
		log.Fatal(err)
	}
	plan, err := patch.New(f, sites, patch.Options{Tracer: patch.FunctionGraph})
	if err != nil {
		log.Fatal(err)
	}
	traced, err := plan.Image() // to be written to a file and run
	if err != nil {
		log.Fatal(err)
	}
	for i := range plan.Functions {
		if fn := &plan.Functions[i]; fn.Action == patch.Trace {
			w := plan.Windows(fn)[0]
			fmt.Printf("%d %s: % x is rewritten, %v\n", fn.ID, fn.Name, w.Old, w.Purpose)
		}
	}
	info, err := patch.Verify(traced)
	fmt.Println(len(info.Sites), "site,", info.Tracer, err)
	before, err := patch.Undo(traced)
	fmt.Println(bytes.Equal(before, image), err)
	// Output:
	// 1 twice: e8 eb ff ff ff is rewritten, trace
	// 1 site, function_graph <nil>
	// true <nil>
}
