package elfio_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"log"
	"os"

	"github.com/fentry-dev/fentry/elfio"
)

func ExampleParse() {
	b, err := os.ReadFile("testdata/x86_64-exec")
	if err != nil {
		log.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(f.Header.Type, f.Header.Machine, len(f.Progs), "segments")
	syms, err := f.Symbols()
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range syms {
		if s.Type() == elf.STT_FUNC && s.Bind() == elf.STB_GLOBAL {
			fmt.Println(s.Name, f.Sections[s.Section].Name, s.Size > 0)
		}
	}
	// Output:
	// ET_EXEC EM_X86_64 7 segments
	// function .text true
	// other .text true
	// tls_value .text true
	// _start .text true
}

// A new entry point counts in zeroed memory and jumps to the old one.
func ExampleFile_Inject() {
	b, err := os.ReadFile("testdata/x86_64-exec")
	if err != nil {
		log.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		log.Fatal(err)
	}
	l, err := f.Layout(8, 8)
	if err != nil {
		log.Fatal(err)
	}
	code := []byte{
		0x48, 0xff, 0x05, 0, 0, 0, 0, // incq counter(%rip)
		0xe9, 0, 0, 0, 0, // jmp entry
	}
	binary.LittleEndian.PutUint32(code[3:], uint32(l.RW-(l.RX+7)))
	binary.LittleEndian.PutUint32(code[8:], uint32(f.Header.Entry-(l.RX+12)))
	out, err := f.Inject(elfio.Injection{
		Layout: l, RX: code, Entry: l.RX,
		Symbols: []elfio.AddedSymbol{{Name: "count", Value: l.RX, Size: 12, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC)}},
	})
	if err != nil {
		log.Fatal(err)
	}
	g, err := elfio.Parse(out)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("entry moved:", g.Header.Entry == l.RX, "valid:", g.Verify() == nil)
	back, err := elfio.Uninject(out)
	fmt.Println("undone:", bytes.Equal(back, b), err)
	// Output:
	// entry moved: true valid: true
	// undone: true <nil>
}

// An object is linked for addresses inside an image.
func ExampleLinkObject() {
	b, err := os.ReadFile("testdata/counter.o")
	if err != nil {
		log.Fatal(err)
	}
	obj, err := elfio.Parse(b)
	if err != nil {
		log.Fatal(err)
	}
	size, align, err := elfio.WritableSize(obj)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("needs", size, "bytes aligned to", align)
	l, err := elfio.LinkObject(obj, elfio.LinkOptions{RX: 0x10000, RW: 0x8000})
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
