package stub_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"log"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/link"
	"github.com/fentry-dev/fentry/stub"
)

// The runtime is linked for the addresses it gets in an image, and is told there what
// the process is to do and what the image has.
func ExampleObject() {
	obj, err := stub.Object(elf.EM_X86_64)
	if err != nil {
		log.Fatal(err)
	}
	f, err := elfio.Parse(obj)
	if err != nil {
		log.Fatal(err)
	}
	const thunks, code, data, switches = 0x500000, 0x510000, 0x600000, 0x680000
	rt, err := link.Object(f, link.Options{RX: code, RW: data, Symbols: map[string]uint64{
		"fentry_orig_entry": 0x401000, "fentry_orig_fini": 0x401000, "fentry_syscall_filter": 0x401000, "fentry_irel_ret": code,
	}})
	if err != nil {
		log.Fatal(err)
	}
	config := stub.Config{Mode: stub.ModeGraph, Dir: "trace"}
	at := rt.Symbols["fentry_image"]
	image := stub.Image{
		ID: 1, Sites: 100, Mode: config.Mode, Address: at, Path: "/usr/bin/prog",
		Thunks: int64(thunks - at), ThunkSize: 32, Switches: int64(switches - at),
	}
	b, err := config.MarshalBinary()
	if err != nil {
		log.Fatal(err)
	}
	copy(rt.RX[rt.Symbols["fentry_config"]-code:], b)
	if b, err = image.MarshalBinary(); err != nil {
		log.Fatal(err)
	}
	copy(rt.RX[at-code:], b)
	fmt.Println(bytes.Contains(rt.RX, []byte("/usr/bin/prog\x00")), stub.SwitchesSize(100), "bytes of switches")
	// Output: true 104 bytes of switches
}

// The runtime is one relocatable object per machine. What thunks call for function_graph:
func ExampleObject_routines() {
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

// Programs compiled with -pg are linked with the library.
func ExampleLibrary() {
	lib, err := stub.Library(elf.EM_X86_64)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q, %t\n", lib[:8], bytes.Contains(lib, []byte("\x00mcount\x00")))
	// gcc -pg prog.c libfentry.a
	// Output: "!<arch>\n", true
}
