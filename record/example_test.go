package record_test

import (
	"fmt"
	"log"
	"os"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/record"
)

func Example() {
	b, err := os.ReadFile("testdata/prebuilt/fentry-shared.elf")
	if err != nil {
		log.Fatal(err)
	}
	img, err := elfio.Parse(b)
	if err != nil {
		log.Fatal(err)
	}
	sites, err := record.Find(img, record.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range sites {
		if s.Traceable() {
			fmt.Printf("%-10s %v at +%d: % x\n", s.Name, s.Kind, s.Addr-s.Func, s.Bytes)
		} else {
			fmt.Printf("%-10s %s\n", s.Name, s.Reason)
		}
	}
	// Output:
	// local      fentry-call at +0: ff 15 1a 1c 00 00
	// inner.0    fentry-call at +0: 41 52 ff 15 08 1c 00 00 41 5a
	// untraced   no-site
	// leaf       fentry-call at +0: ff 15 ea 1b 00 00
	// varargs    fentry-call at +0: ff 15 ca 1b 00 00
	// realigned  fentry-call at +0: ff 15 2a 1b 00 00
	// outer      fentry-call at +0: ff 15 9a 1a 00 00
	// start      fentry-call at +0: ff 15 2a 1a 00 00
}

func ExampleNewFilter() {
	f, err := record.NewFilter([]string{"parse_*", "!parse_int", "json::Reader::*", "typo"}, []string{"/_locked$/"})
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"parse_list", "parse_int", "parse_list_locked", "_ZN4json6Reader4nextEv", "main"} {
		fmt.Println(name, f.Match(name))
	}
	fmt.Println("unmatched:", f.Unmatched())
	// Output:
	// parse_list true
	// parse_int false
	// parse_list_locked false
	// _ZN4json6Reader4nextEv true
	// main false
	// unmatched: [typo]
}
