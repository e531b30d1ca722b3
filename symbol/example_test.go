package symbol_test

import (
	"fmt"
	"log"
	"os"

	"github.com/fentry-dev/fentry/symbol"
)

func Example() {
	tab, err := symbol.Open("testdata/lines.elf", symbol.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer tab.Close()
	for _, fn := range tab.Funcs() {
		line, _, err := tab.Line(fn.Addr)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(fn.Name, fn.Size, line)
	}
	// Output:
	// local 12 /src/lines.c:5
	// plain 52 /src/lines.c:7
}

func ExampleDemangle() {
	for _, s := range []symbol.Style{symbol.Simple, symbol.Full, symbol.No} {
		fmt.Println(symbol.Demangle("_ZN2ns5twiceIiEET_S1_@@V1", s))
	}
	// Output:
	// ns::twice<int>
	// int ns::twice<int>(int)
	// _ZN2ns5twiceIiEET_S1_
}

func ExampleWriteSym() {
	err := symbol.WriteSym(os.Stdout, &symbol.SymFile{
		Path: "/usr/bin/prog", BuildID: []byte{0xca, 0xfe}, Image: 7, Machine: "x86_64", Entry: 0x1040,
		Entries: []symbol.SymEntry{{ID: 1, Func: 0x1139, Size: 0x20, Site: 0x1139, Kind: "fentry-call", Name: "main"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// # path: /usr/bin/prog
	// # build-id: cafe
	// # image: 0000000000000007
	// # machine: x86_64
	// # entry: 1040
	// 1	1139	20	1139	fentry-call	main
}
