package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/fentry-dev/fentry/cmd/fentry/internal/mcount"
	"github.com/fentry-dev/fentry/record/objects"
)

// siteJSON is a line of --list --json.
type siteJSON struct {
	File     string `json:"file"`
	Member   string `json:"member,omitempty"`
	Section  string `json:"section"`
	Index    int    `json:"section_index"`
	Offset   uint64 `json:"offset"`
	Length   int    `json:"length"`
	Call     uint64 `json:"call"`
	Form     string `json:"form"`
	Function string `json:"function,omitempty"`
	Delta    uint64 `json:"function_offset"`
	Callee   string `json:"callee,omitempty"`
	Recorded bool   `json:"recorded"`
	Tabled   bool   `json:"tabled"`
}

// lister prints the sites of an object.
func lister(files []string, i int, asJSON bool) *mcount.Report {
	file := files[i]
	heading := len(files) > 1
	t := new(mcount.Report)
	t.Inspect = func(member string, ob *objects.Object, _ objects.Result) error {
		fns, err := ob.Functions()
		if err != nil {
			return err
		}
		tw := tabwriter.NewWriter(&t.Out, 0, 8, 2, ' ', 0)
		enc := json.NewEncoder(&t.Out)
		if !asJSON {
			if heading || member != "" {
				fmt.Fprintf(&t.Out, "%s:\n", printable(objectName(file, member)))
			}
			fmt.Fprintln(tw, "SECTION\tOFFSET\tLENGTH\tFORM\tFUNCTION\tCALLEE\tTABLE")
		}
		show := func(s objects.Site) error {
			name, delta := fns.At(s.Section, s.Off)
			section := ob.File().Sections[s.Section].Name
			if asJSON {
				return enc.Encode(siteJSON{
					File: file, Member: member, Section: section, Index: s.Section, Offset: s.Off, Length: s.Len,
					Call: s.Call, Form: s.Form.String(), Function: name, Delta: delta, Callee: s.Callee,
					Recorded: s.Listed && s.Form != objects.FormAddress, Tabled: s.Tabled,
				})
			}
			_, err := fmt.Fprintf(tw, "%s\t%#x\t%d\t%v\t%s\t%s\t%s\n",
				printable(section), s.Off, s.Len, s.Form, orDash(function(name, delta)),
				orDash(printable(s.Callee)), tableState(s))
			return err
		}
		for s := range ob.Sites() {
			if err := show(s); err != nil {
				return err
			}
		}
		for s, err := range ob.Patchable() {
			if err != nil {
				return err
			}
			if err := show(s); err != nil {
				return err
			}
		}
		return tw.Flush()
	}
	return t
}

// tableState says what becomes of a site.
func tableState(s objects.Site) string {
	switch {
	case s.Form == objects.FormAddress:
		return "address taken"
	case s.Tabled:
		return "listed"
	case s.Listed:
		return "to add"
	}
	return "not recorded"
}

func function(name string, delta uint64) string {
	if name == "" || delta == 0 {
		return printable(name)
	}
	return fmt.Sprintf("%s+%#x", printable(name), delta)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func objectName(file, member string) string {
	if member == "" {
		return file
	}
	return file + "(" + member + ")"
}

// checker says what is wrong with the tables of an object.
func checker(file string) *mcount.Report {
	t := new(mcount.Report)
	t.Inspect = func(member string, ob *objects.Object, _ objects.Result) error {
		for _, b := range ob.Check() {
			fmt.Fprintf(&t.Out, "%s: %s\n", objectName(file, member), b)
			t.Bad = true
		}
		// These may be as they should, so the check has not failed.
		notes, err := ob.Unknown()
		for _, n := range notes {
			fmt.Fprintf(&t.Out, "%s: note: %s\n", objectName(file, member), n)
		}
		return err
	}
	return t
}
