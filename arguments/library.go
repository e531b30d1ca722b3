package arguments

import (
	_ "embed"
	"strings"
	"sync"
)

// Functions of the C library. Programs call them without debug information at hand, and what they are called with is
// what many want to see: a text has their prototypes, as ltrace has. It is parsed when it is first asked for.

//go:embed libc.txt
var libcText string

// libraryTypes are the words of the text, with the formats in which numbers are shown.
var libraryTypes = map[string]struct {
	t      *Type
	format string
}{
	"void":   {&Type{Kind: Void}, ""},
	"str":    {&Type{Kind: String, Size: 8}, ""},
	"ptr":    {&Type{Kind: Pointer, Size: 8}, ""},
	"file":   {&Type{Kind: Pointer, Size: 8}, ""},
	"dir":    {&Type{Kind: Pointer, Size: 8}, ""},
	"fd":     {&Type{Kind: Int, Size: 4}, ""},
	"int":    {&Type{Kind: Int, Size: 4}, ""},
	"uint":   {&Type{Kind: Uint, Size: 4}, ""},
	"long":   {&Type{Kind: Int, Size: 8}, ""},
	"ulong":  {&Type{Kind: Uint, Size: 8}, ""},
	"size":   {&Type{Kind: Uint, Size: 8}, ""},
	"ssize":  {&Type{Kind: Int, Size: 8}, ""},
	"hex":    {&Type{Kind: Uint, Size: 4}, "x"},
	"mode":   {&Type{Kind: Uint, Size: 4}, "o"},
	"char":   {&Type{Kind: Char, Size: 1}, ""},
	"float":  {&Type{Kind: Float, Size: 4}, ""},
	"double": {&Type{Kind: Float, Size: 8}, ""},
}

var library = sync.OnceValue(func() map[string]*Func {
	out := map[string]*Func{}
	for line := range strings.Lines(libcText) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			f := prototype(line)
			out[f.Name] = f
		}
	}
	return out
})

// prototype parses a line of the text. A test sees to it that all can be.
func prototype(line string) *Func {
	head, params, _ := strings.Cut(strings.TrimSuffix(line, ")"), "(")
	result, name, _ := strings.Cut(head, " ")
	f := &Func{Name: name}
	if t := libraryTypes[result]; t.t != nil && t.t.Kind != Void {
		f.Result = t.t
	}
	for p := range strings.SplitSeq(params, ", ") {
		if p == "..." {
			f.Variadic = true
			continue
		}
		word, name, _ := strings.Cut(p, " ")
		if t := libraryTypes[word]; t.t != nil && t.t.Kind != Void {
			f.Params = append(f.Params, Param{Name: name, Type: t.t, Format: t.format})
		}
	}
	return f
}

// Library returns a function of the C library by its name; nil: it is not known.
func Library(name string) *Func { return library()[name] }
