package symbol_test

import (
	"fmt"
	"log"

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
