package ar_test

import (
	"bytes"
	"fmt"
	"log"
	"os"

	"github.com/fentry-dev/fentry/elfio/ar"
)

// What a member is replaced with has a size and can be written: a bytes.Reader, or an elfio.Output.
func ExampleArchive_Replace() {
	const archive = "!<arch>\n" +
		"a.txt/          0           0     0     644     6         `\nfirst\n" +
		"b.txt/          0           0     0     644     7         `\nsecond\n\n"
	a, err := ar.Parse([]byte(archive))
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range a.Members {
		fmt.Printf("%s: %q\n", m.Name, a.Data(m))
	}
	out, err := a.Replace(map[int]ar.Contents{0: bytes.NewReader([]byte("changed\n"))})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := out.WriteTo(os.Stdout); err != nil {
		log.Fatal(err)
	}
	// Output:
	// a.txt: "first\n"
	// b.txt: "second\n"
	// !<arch>
	// a.txt/          0           0     0     644     8         `
	// changed
	// b.txt/          0           0     0     644     7         `
	// second
}
