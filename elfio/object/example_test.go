package object_test

import (
	"debug/elf"
	"fmt"
	"log"
	"os"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/object"
)

// A section and a local symbol in it are added to an object; global symbols move up.
func ExampleExtend() {
	b, err := os.ReadFile("../testdata/counter.o")
	if err != nil {
		log.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		log.Fatal(err)
	}
	out, err := object.Extend(f, object.Additions{
		Symtab: f.SectionIndex(".symtab"),
		Sections: []object.Section{
			{Name: ".note", Type: elf.SHT_PROGBITS, Addralign: 1, Data: []byte("made by an example")},
		},
		Locals: []object.Symbol{{Name: "note", Type: elf.STT_OBJECT, Section: uint32(len(f.Sections))}},
	})
	if err != nil {
		log.Fatal(err)
	}
	g, err := elfio.Parse(out.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	syms, err := g.Symbols()
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range syms {
		if s.Name == "note" || s.Bind() == elf.STB_GLOBAL {
			fmt.Println(s.Index, s.Bind(), s.Name, "in", g.Sections[s.Section].Name)
		}
	}
	data, err := g.SectionData(g.SectionIndex(".note"))
	fmt.Printf("%q, %v\n", data, err)
	// Output:
	// 7 STB_LOCAL note in .note
	// 8 STB_GLOBAL count in .text
	// 9 STB_GLOBAL twice in .text
	// "made by an example", <nil>
}
