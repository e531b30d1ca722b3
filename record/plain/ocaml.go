package plain

import (
	"cmp"
	"debug/elf"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/fentry-dev/fentry/elfio"
)

// OCaml's own code.
//
// OCaml's collector looks up the return addresses of OCaml's functions, and goes past those of C functions: where OCaml was left
// is noted by the runtime's assembly (caml_c_call, caml_call_gc), and C functions that OCaml calls without that may neither
// allocate nor call back. So C functions in the same image are traced like all others, if it is known where OCaml's code is. For
// each module, and for the runtime's assembly, the compiler has symbols before and behind it, which are in the dynamic symbol
// table as well: the runtime looks them up in plug-ins. An image in which some are missing is left alone.

// ocamlText is in every image with a runtime of OCaml: a variable that it reads.
const ocamlText = "OCAMLRUNPARAM"

var (
	// ocamlBound is a symbol before or behind code. Between the module and the rest are two underscores, or a point.
	ocamlBound  = lazily(`^(caml.+)(?:__|\.)code_(begin|end)$`)
	ocamlModule = lazily(`^caml[A-Z]`)
	// ocamlFunction is a symbol of OCaml's functions, those that its linker makes, and the runtime's assembly.
	ocamlFunction = lazily(`^caml(?:[A-Z].*(?:__|\.).*|_(?:curry|apply|tuplify|send)\d+.*|_(?:call_gc|c_call|start_program|raise_exn|callback_asm))$`)
)

// lazily is a regular expression that is compiled when it is first wanted: most runs want none.
func lazily(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// ocaml is what an image has of OCaml.
type ocaml struct {
	code     []span // of OCaml's functions and of the runtime's assembly, sorted
	assembly span   // the latter
	hidden   bool   // there is some of which nothing tells where it is
	traced   bool   // OCaml's functions are traced as well (ocamlmoves.go)
}

// ocamlIn reads it.
func ocamlIn(f *elfio.File) (o ocaml) {
	runtime := contains(f, ocamlText)
	syms, err := f.DynamicSymbols()
	isCaml := func(s elfio.Symbol) bool { return strings.HasPrefix(s.Name, "caml") }
	if err != nil || !runtime && !slices.ContainsFunc(syms, isCaml) {
		return ocaml{hidden: runtime}
	}
	more, err := f.Symbols()
	if err != nil {
		return ocaml{hidden: true}
	}
	syms = append(slices.DeleteFunc(syms, func(s elfio.Symbol) bool { return !isCaml(s) }),
		slices.DeleteFunc(more, func(s elfio.Symbol) bool { return !isCaml(s) })...)
	bounds := make(map[string]*span)
	native, interpreter, linked, modules := false, false, false, false
	for _, s := range syms {
		interpreter = interpreter || s.Name == "caml_interprete" && s.Defined()
		native = native || ocamlFunction().MatchString(s.Name)
		m := ocamlBound().FindStringSubmatch(s.Name)
		if m == nil || !s.Defined() {
			continue
		}
		linked = linked || strings.HasSuffix(m[1], "startup")
		modules = modules || ocamlModule().MatchString(m[1])
		r := bounds[m[1]]
		if r == nil {
			r = &span{}
			bounds[m[1]] = r
		}
		if m[2] == "begin" {
			r.lo = s.Value
		} else {
			r.hi = s.Value
		}
	}
	if r := bounds["caml_system"]; r != nil {
		o.assembly = *r
	}
	o.traced = version4(f, o.assembly, func(name string) bool {
		return slices.ContainsFunc(syms, func(s elfio.Symbol) bool { return s.Name == name })
	})
	for _, r := range bounds {
		o.hidden = o.hidden || r.lo == 0 || r.hi < r.lo
		if r.lo < r.hi {
			o.code = append(o.code, *r)
		}
	}
	slices.SortFunc(o.code, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	for i := range o.code[:max(len(o.code), 1)-1] {
		o.hidden = o.hidden || o.code[i].hi > o.code[i+1].lo
	}
	for _, s := range syms {
		if s.Type() == elf.STT_FUNC && s.Defined() && ocamlFunction().MatchString(s.Name) && !o.has(s.Value) {
			o.hidden = true // functions that have sections of their own
		}
	}
	// What OCaml has linked has modules, those of the standard library at least.
	if len(o.code) == 0 && (native || runtime && !interpreter) || linked && !modules {
		o.hidden = true
	}
	return o
}

// has reports whether an address is in OCaml's code.
func (o *ocaml) has(addr uint64) bool {
	i, found := slices.BinarySearchFunc(o.code, addr, func(r span, at uint64) int { return cmp.Compare(r.lo, at) })
	if !found {
		i--
	}
	return i >= 0 && addr < o.code[i].hi
}
