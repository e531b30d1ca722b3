package uftrace

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// What the values behind a record are, uftrace knows from a text in the file info: for each function, by its name, which
// types they have. There are no types for what fentry knows of values, structures, enumerators, what could not be read;
// so each is a text, as replay shows it, without the quotes around strings, because uftrace puts some around every text.
// Functions of one name must have as many; who comes later with another number has none, and neither has a function whose
// name cannot be in that text.

// maxText is how many bytes of a value are kept: uftrace prints into a line of a fixed size.
const maxText = 200

// values are what is known of values.
type values struct {
	t         *trace.Trace
	arguments map[string]int        // by name of function
	results   map[string]bool       // of functions with results
	named     map[trace.FuncID]bool // whose names are in there
}

// leaveValues counts values that there is no place for.
func (p *writer) leaveValues(ev *trace.Event) {
	if ev != nil {
		p.sum.LeaveValues(ev)
	}
}

// valuesOf returns what follows the record of a call's beginning or end, nil if nothing does.
func (p *writer) valuesOf(ev *trace.Event) []byte {
	if ev == nil || !export.HasValues(ev) {
		return nil
	}
	var b []byte
	n := 0
	export.EachValue(p.t, ev, false, func(_ string, text []byte) {
		b = appendText(b, text)
		n++
	})
	if n == 0 {
		return nil
	}
	if !p.values.add(ev, n) {
		p.leaveValues(ev)
		return nil
	}
	return append(b, make([]byte, -len(b)&7)...)
}

// add remembers that a function has so many values. It returns false if they cannot be told.
func (v *values) add(ev *trace.Event, n int) bool {
	name := v.t.Name(ev.Func)
	if name == "" || name != safetext.Line(name) || strings.ContainsAny(name, ";@") || strings.HasPrefix(name, "_Z") {
		return false
	}
	if v.named == nil {
		v.arguments, v.results, v.named = map[string]int{}, map[string]bool{}, map[trace.FuncID]bool{}
	}
	if ev.Kind == trace.Exit {
		v.results[name] = true
	} else if have, ok := v.arguments[name]; ok && have != n {
		return false
	} else {
		v.arguments[name] = n
	}
	v.named[ev.Func] = true
	return true
}

// has tells whether uftrace has to find the function by its name.
func (v *values) has(fn trace.FuncID) bool { return v.named[fn] }

// specs returns the features that the data has, and the lines of the file info that say where values are.
func (v *values) specs() (features uint64, lines string) {
	var arguments, results []string
	for _, name := range slices.Sorted(maps.Keys(v.arguments)) {
		list := make([]string, v.arguments[name])
		for i := range list {
			list[i] = fmt.Sprintf("arg%d/s", i+1)
		}
		arguments = append(arguments, name+"@"+strings.Join(list, ","))
	}
	for _, name := range slices.Sorted(maps.Keys(v.results)) {
		results = append(results, name+"@retval/s")
	}
	var all []string
	if len(arguments) > 0 {
		features |= featureArguments
		all = append(all, "argspec:"+strings.Join(arguments, ";"))
	}
	if len(results) > 0 {
		features |= featureResults
		all = append(all, "retspec:"+strings.Join(results, ";"))
	}
	if len(all) == 0 {
		return 0, ""
	}
	return features, fmt.Sprintf("argspec:lines=%d\n%s\npattern_type:simple\n", len(all), strings.Join(all, "\n"))
}

// appendText appends a value: its length, the bytes, and zeroes up to a multiple of four.
func appendText(b, text []byte) []byte {
	s := safetext.Line(string(text))
	if n := len(s); n >= 2 && s[0] == '"' && s[n-1] == '"' {
		s = s[1 : n-1]
	}
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "..."
	}
	b = append(binary.LittleEndian.AppendUint16(b, uint16(len(s))), s...)
	return append(b, make([]byte, -(len(s)+2)&3)...)
}
