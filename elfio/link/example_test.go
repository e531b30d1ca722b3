package link_test

import (
	"fmt"
	"log"
	"os"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/link"
)

// An object is linked for addresses inside an image.
func ExampleObject() {
	b, err := os.ReadFile("../testdata/counter.o")
	if err != nil {
		log.Fatal(err)
	}
	obj, err := elfio.Parse(b)
	if err != nil {
		log.Fatal(err)
	}
	size, align, err := link.WritableSize(obj)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("needs", size, "bytes aligned to", align)
	l, err := link.Object(obj, link.Options{RX: 0x10000, RW: 0x8000})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range l.Sections {
		fmt.Printf("%#x %s\n", s.Addr, s.Name)
	}
	for _, s := range l.Defined {
		fmt.Printf("%#x %s\n", s.Value, s.Name)
	}
	// Output:
	// needs 4 bytes aligned to 16
	// 0x10000 .text
	// 0x10040 .rodata
	// 0x10048 .eh_frame
	// 0x8000 .bss
	// 0x8000 calls
	// 0x10000 count
	// 0x1001a twice
	// 0x10040 step
}
