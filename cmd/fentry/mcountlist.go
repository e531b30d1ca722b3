package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/fentry-dev/fentry/cmd/fentry/internal/mcount"
	"github.com/fentry-dev/fentry/internal/safetext"
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
	Delta    int64  `json:"function_offset"`
	Callee   string `json:"callee,omitempty"`
	Recorded bool   `json:"recorded"`
	Tabled   bool   `json:"tabled"`
}

// lister prints the sites of an object. There may be millions, so each is forgotten when it is printed; the widths of
// columns are found by going through them twice.
func lister(files []string, i int, asJSON bool) *mcount.Report {
	t := new(mcount.Report)
	t.Inspect = func(member string, ob *objects.Object, _ objects.Result) error {
		fns, err := ob.Functions()
		if err != nil {
			return err
		}
		l := siteList{ob: ob, fns: fns, file: files[i], member: member}
		if asJSON {
			enc := json.NewEncoder(safetext.JSONWriter(t.Out))
			return l.each(func(s objects.Site) error { return enc.Encode(l.json(s)) })
		}
		if len(files) > 1 || member != "" {
			fmt.Fprintf(t.Out, "%s:\n", printable(objectName(files[i], member)))
		}
		return l.text(t.Out)
	}
	return t
}

// siteList is what --list prints of an object.
type siteList struct {
	ob           *objects.Object
	fns          *objects.Functions
	file, member string
}

// each calls show with all sites.
func (l *siteList) each(show func(objects.Site) error) error {
	for s := range l.ob.Sites() {
		if err := show(s); err != nil {
			return err
		}
	}
	for s, err := range l.ob.Patchable() {
		if err == nil {
			err = show(s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// section is the name of the section a site is in; a table may name one that is not there.
func (l *siteList) section(s objects.Site) string {
	secs := l.ob.File().Sections
	if s.Section < 0 || s.Section >= len(secs) {
		return fmt.Sprintf("section %d of %d", s.Section, len(secs))
	}
	return secs[s.Section].Name
}

func (l *siteList) json(s objects.Site) siteJSON {
	name, delta := l.fns.Of(s)
	return siteJSON{
		File: l.file, Member: l.member, Section: l.section(s), Index: s.Section, Offset: s.Off, Length: s.Len,
		Call: s.Call, Form: s.Form.String(), Function: name, Delta: delta, Callee: s.Callee,
		Recorded: s.Listed && s.Form != objects.FormAddress, Tabled: s.Tabled,
	}
}

// siteColumns is the heading of the text form. The last column is not padded.
var siteColumns = [...]string{"SECTION", "OFFSET", "LENGTH", "FORM", "FUNCTION", "CALLEE", "TABLE"}

// text prints the sites as a table.
func (l *siteList) text(w io.Writer) error {
	var width [len(siteColumns) - 1]int
	for i := range width {
		width[i] = len(siteColumns[i])
	}
	if err := l.each(func(s objects.Site) error {
		row := l.row(s)
		for i := range width {
			width[i] = max(width[i], utf8.RuneCountInString(row[i]))
		}
		return nil
	}); err != nil {
		return err
	}
	var line []byte
	put := func(row [len(siteColumns)]string) error {
		line = line[:0]
		for i, cell := range row {
			line = append(line, cell...)
			if i < len(width) {
				for range width[i] - utf8.RuneCountInString(cell) + 2 {
					line = append(line, ' ')
				}
			}
		}
		_, err := w.Write(append(line, '\n'))
		return err
	}
	if err := put(siteColumns); err != nil {
		return err
	}
	return l.each(func(s objects.Site) error { return put(l.row(s)) })
}

func (l *siteList) row(s objects.Site) [len(siteColumns)]string {
	name, delta := l.fns.Of(s)
	return [...]string{
		printable(l.section(s)), "0x" + strconv.FormatUint(s.Off, 16), strconv.Itoa(s.Len), s.Form.String(),
		orDash(function(name, delta)), orDash(printable(s.Callee)), tableState(s),
	}
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

func function(name string, delta int64) string {
	if name == "" || delta == 0 {
		return printable(name)
	}
	if delta < 0 {
		return fmt.Sprintf("%s-%#x", printable(name), -delta)
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
		for b := range ob.Check() {
			fmt.Fprintf(t.Out, "%s: %s\n", printable(objectName(file, member)), printable(b))
			t.Bad = true
		}
		// These may be as they should, so the check has not failed.
		notes, err := ob.Unknown()
		for _, n := range notes {
			fmt.Fprintf(t.Out, "%s: note: %s\n", printable(objectName(file, member)), printable(n))
		}
		return err
	}
	return t
}
