package names_test

import (
	"bytes"
	"fmt"
	"log"
	"os"

	"github.com/fentry-dev/fentry/names"
)

// A table is written where the trace is, and read with it.
func Example() {
	tab := &names.Table{
		Path: "/usr/bin/prog", BuildID: []byte{0xca, 0xfe}, Image: 7, Machine: "x86_64", Entry: 0x1040,
		Funcs: []names.Func{
			{ID: 1, Addr: 0x1139, Size: 0x20, Site: 0x1139, Kind: "fentry-call", Name: "main"},
			{ID: 2, Addr: 0x1160, Size: 0x11, Site: 0x1160, Kind: "fentry-call", Name: "_ZN4Line5parseEv"},
		},
	}
	var sym bytes.Buffer
	if err := names.Write(&sym, tab); err != nil {
		log.Fatal(err)
	}
	os.Stdout.Write(sym.Bytes())

	read, err := names.Read(&sym)
	if err != nil {
		log.Fatal(err)
	}
	fn, ok := read.Func(2)
	fmt.Printf("%s at %#x, %v\n", fn.Name, fn.Addr, ok)
	// Output:
	// # path: /usr/bin/prog
	// # build-id: cafe
	// # image: 0000000000000007
	// # machine: x86_64
	// # entry: 1040
	// 1	1139	20	1139	fentry-call	main
	// 2	1160	11	1160	fentry-call	_ZN4Line5parseEv
	// _ZN4Line5parseEv at 0x1160, true
}
