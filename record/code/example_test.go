package code_test

import (
	"fmt"
	"log"
	"os"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/record/code"
)

// How much of an image's code is instructions, and how much only fills.
func Example() {
	b, err := os.ReadFile("../testdata/prebuilt/fentry-shared.elf")
	if err != nil {
		log.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		log.Fatal(err)
	}
	text, err := code.New(f)
	if err != nil {
		log.Fatal(err)
	}
	m := code.MachineOf(f.Header.Machine)
	for _, r := range text.Regions {
		n, padding := 0, 0
		for b := r.Data; len(b) > 0; {
			size, flow := m.Inst(b)
			if size == 0 {
				log.Fatalf("%s: no instruction: % x", r.Name, b[:min(len(b), 15)])
			}
			n++
			if flow == code.FlowPadding {
				padding += size
			}
			b = b[size:]
		}
		fmt.Printf("%-5s %d instructions in %d bytes, %d of them padding\n", r.Name, n, len(r.Data), padding)
	}
	// Output:
	// .plt  18 instructions in 96 bytes, 4 of them padding
	// .text 149 instructions in 574 bytes, 74 of them padding
}
