package inject_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"log"
	"os"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/inject"
)

// A new entry point counts in zeroed memory and jumps to the old one.
func ExampleInto() {
	b, err := os.ReadFile("../testdata/x86_64-exec")
	if err != nil {
		log.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		log.Fatal(err)
	}
	l, err := inject.NewLayout(f, inject.Memory{RW: 8})
	if err != nil {
		log.Fatal(err)
	}
	code := []byte{
		0x48, 0xff, 0x05, 0, 0, 0, 0, // incq counter(%rip)
		0xe9, 0, 0, 0, 0, // jmp entry
	}
	binary.LittleEndian.PutUint32(code[3:], uint32(l.RW-(l.RX+7)))
	binary.LittleEndian.PutUint32(code[8:], uint32(f.Header.Entry-(l.RX+12)))
	o, err := inject.Into(f, inject.Injection{
		Layout: l, RX: code, Entry: l.RX,
		Symbols: []inject.Symbol{{Name: "count", Value: l.RX, Size: 12, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC)}},
	})
	if err != nil {
		log.Fatal(err)
	}
	out := o.Bytes()
	g, err := elfio.Parse(out)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("entry moved:", g.Header.Entry == l.RX, "valid:", inject.Verify(g) == nil)
	back, err := inject.Undo(out)
	fmt.Println("undone:", bytes.Equal(back, b), err)
	// Output:
	// entry moved: true valid: true
	// undone: true <nil>
}
