package elfio_test

import (
	"debug/elf"
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
