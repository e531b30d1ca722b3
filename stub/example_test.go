package stub_test

import (
	"debug/elf"
	"fmt"
	"log"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/stub"
)

// The runtime is one relocatable object per machine. What thunks call for function_graph:
func ExampleObject() {
	for _, machine := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64} {
		obj, err := stub.Object(machine)
		if err != nil {
			log.Fatal(err)
		}
		f, err := elfio.Parse(obj)
		if err != nil {
			log.Fatal(err)
		}
		syms, err := f.Symbols()
		if err != nil {
			log.Fatal(err)
		}
		for _, s := range syms {
			if s.Defined() && strings.HasPrefix(s.Name, "fentry_graph_") {
				fmt.Println(f.Header.Machine, s.Name)
			}
		}
	}
	// Unordered output:
	// EM_X86_64 fentry_graph_enter
	// EM_X86_64 fentry_graph_exit
	// EM_AARCH64 fentry_graph_enter
	// EM_AARCH64 fentry_graph_exit
}
