package ehframe_test

import (
	"fmt"
	"log"
	"os"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
)

// What the compiler says about stack frames, and where.
func ExampleRead() {
	b, err := os.ReadFile("../testdata/x86_64-exec")
	if err != nil {
		log.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		log.Fatal(err)
	}
	t, err := ehframe.Read(f)
	if err != nil {
		log.Fatal(err)
	}
	for d := range t.All() {
		fmt.Printf("%#x: %d bytes of code, CIE %q, return address in column %d\n", d.PC, d.Size, d.CIE.Augmentation,
			d.CIE.RetReg)
	}
	// Output:
	// 0x2012a0: 28 bytes of code, CIE "zR", return address in column 16
	// 0x2012f0: 27 bytes of code, CIE "zR", return address in column 16
	// 0x2012c0: 6 bytes of code, CIE "zR", return address in column 16
	// 0x2012d0: 18 bytes of code, CIE "zR", return address in column 16
}

// The entries are copied to another address, with one more instruction in every CIE.
func ExampleMoved_Append() {
	b, err := os.ReadFile("../testdata/x86_64-exec")
	if err != nil {
		log.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		log.Fatal(err)
	}
	t, err := ehframe.Read(f)
	if err != nil {
		log.Fatal(err)
	}
	const at = 0x500000
	undefined := ehframe.Rules{CIE: func(*ehframe.CIE) []byte { return []byte{0x07, 3} }} // DW_CFA_undefined: rbx
	var m ehframe.Moved
	if err := m.Append(f, at, 0, t.All(), undefined); err != nil {
		log.Fatal(err)
	}
	hdr, err := ehframe.NewHeader(f, at-0x1000, at, m.Entries, nil)
	if err != nil {
		log.Fatal(err)
	}
	moved, err := ehframe.Parse(f, m.EhFrame, at)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d entries of %d at %#x, table of %d bytes\n", moved.Len(), t.Len(), moved.At(0).Addr&^0xfff, len(hdr))
	// Output:
	// 4 entries of 4 at 0x500000, table of 44 bytes
}
