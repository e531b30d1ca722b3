package objects_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"log"

	"github.com/fentry-dev/fentry/record/objects"
)

// example is an arm64 object with one function that calls _mcount.
func example() []byte {
	return synthetic(elf.EM_AARCH64, false, true, []uint32{0x94000000, 0xd65f03c0}, uint32(elf.R_AARCH64_CALL26),
		"_mcount")
}

func ExampleParse() {
	ob, err := objects.Parse(example(), objects.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for s := range ob.Sites() {
		fmt.Printf("%s+%#x: %d bytes, %v of %s\n", ob.File().Sections[s.Section].Name, s.Off, s.Len, s.Form, s.Callee)
	}
	// Output:
	// .text+0x0: 4 bytes, call of _mcount
}

func ExampleOpen() {
	b := example()
	ob, err := objects.Open(bytes.NewReader(b), int64(len(b)), objects.Options{})
	if err != nil {
		log.Fatal(err)
	}
	res, err := ob.Output()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Recorded, "entry added,", len(res.Output.Edits), "edit of the original")
	// Output:
	// 1 entry added, 1 edit of the original
}

func ExampleStrip() {
	ob, err := objects.Parse(example(), objects.Options{})
	if err != nil {
		log.Fatal(err)
	}
	res, err := ob.Output()
	if err != nil {
		log.Fatal(err)
	}
	orig, err := objects.Strip(res.Output.Bytes())
	fmt.Println(bytes.Equal(orig, example()), err)
	// Output:
	// true <nil>
}
