package symbol

import (
	"fmt"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// Style says how much of a demangled name to show.
type Style uint8

// The styles.
const (
	Simple Style = iota // name without parameters, as its author wrote it: ns::Foo::bar, std::vector<int>::size
	Full                // with parameters, template arguments and clones
	No                  // the raw symbol
)

func (s Style) String() string {
	switch s {
	case Simple:
		return "simple"
	case Full:
		return "full"
	case No:
		return "no"
	}
	return fmt.Sprintf("style-%d", uint8(s))
}

// ParseStyle accepts simple, full and no.
func ParseStyle(s string) (Style, error) {
	for _, v := range []Style{Simple, Full, No} {
		if v.String() == s {
			return v, nil
		}
	}
	return 0, fmt.Errorf("unknown demangling style %q: want simple, full or no", s)
}

// maxMangled is the longest name that is demangled. Nearly all names of real programs stay below; the time for crafted
// ones grows with the square of their length, to a quarter of a second for this many bytes.
const maxMangled = 16 << 10

// maxDemangled is the power of two a demangled name is cut at.
const maxDemangled = 16

// Mangled reports whether Demangle would try to demangle a name: C++ (_Z, ___Z of clang's blocks, _GLOBAL_ of
// constructors before main), Rust (_R, _Z) or OCaml (caml).
func Mangled(name string) bool {
	return strings.HasPrefix(name, "_Z") || strings.HasPrefix(name, "_R") ||
		strings.HasPrefix(name, "___Z") || strings.HasPrefix(name, "_GLOBAL_") || isOCaml(name)
}

// Demangle returns the name of a C++, Rust or OCaml symbol as in its source, and other names unchanged. A version suffix
// (@GLIBCXX_3.4) is removed first; [CallSuffix] stays.
func Demangle(name string, style Style) string {
	if callee, ok := strings.CutSuffix(name, CallSuffix); ok && callee != "" {
		return Demangle(callee, style) + CallSuffix
	}
	name = BaseName(name)
	if style == No || !Mangled(name) || len(name) > maxMangled {
		return name
	}
	if isOCaml(name) {
		short, full, _ := ocamlNames(name)
		if style == Simple {
			return short
		}
		return full
	}
	opts := []demangle.Option{demangle.MaxLength(maxDemangled)}
	if style == Simple {
		opts = append(opts, demangle.NoParams, demangle.NoEnclosingParams, demangle.NoClones)
	}
	out, err := demangle.ToString(name, opts...)
	if err != nil {
		return name
	}
	if style == Simple && !isRust(name) {
		return abbreviate(out)
	}
	return out
}

// DemangleForms returns the forms in which people know the name of a C++, Rust or OCaml function: the full signature, the
// name without parameters, spelled out and as [Simple] has it, and the name without template arguments, too; of an OCaml
// function with its number and without. Signatures of C++ templates begin with the type that they return: that is the form
// typed, which is "" if there is none, and forms has the signature without it. Of other names there are no forms. Those of a
// call into a library end with [CallSuffix].
func DemangleForms(name string) (forms []string, typed string) {
	if callee, ok := strings.CutSuffix(name, CallSuffix); ok && callee != "" {
		if forms, typed = DemangleForms(callee); typed != "" {
			typed += CallSuffix
		}
		for i := range forms {
			forms[i] += CallSuffix
		}
		return forms, typed
	}
	name = BaseName(name)
	if !Mangled(name) || len(name) > maxMangled {
		return nil, ""
	}
	if isOCaml(name) {
		if short, full, ok := ocamlNames(name); ok {
			return distinct(full, short), ""
		}
		return nil, ""
	}
	limit := demangle.MaxLength(maxDemangled)
	if isRust(name) {
		full, err := demangle.ToString(name, limit)
		if err != nil {
			return nil, ""
		}
		short, _ := demangle.ToString(name, limit, demangle.NoTemplateParams)
		return distinct(full, strings.ReplaceAll(short, "::<>", "")), "" // what is left of f::<usize>
	}
	ast, err := demangle.ToAST(name, limit)
	if err != nil {
		return nil, ""
	}
	full := demangle.ASTToString(ast, limit)
	if f := functionType(ast); f != nil && f.Return != nil {
		f.Return = nil
		if untyped := demangle.ASTToString(ast, limit); untyped != full {
			full, typed = untyped, full
		}
	}
	ast = withoutParams(ast)
	plain := demangle.ASTToString(ast, limit, demangle.NoEnclosingParams)
	return distinct(full, plain, abbreviate(plain),
		demangle.ASTToString(ast, limit, demangle.NoEnclosingParams, demangle.NoTemplateParams)), typed
}

// functionType is the type of a function; nil: the name has none.
func functionType(a demangle.AST) *demangle.FunctionType {
	for {
		switch t := a.(type) {
		case *demangle.Clone:
			a = t.Base
		case *demangle.MethodWithQualifiers:
			a = t.Method
		case *demangle.Typed:
			a = t.Type
		case *demangle.FunctionType:
			return t
		default:
			return nil
		}
	}
}

// withoutParams peels clones and the type off the name of a function.
func withoutParams(a demangle.AST) demangle.AST {
	for {
		switch t := a.(type) {
		case *demangle.Clone:
			a = t.Base
		case *demangle.Typed:
			a = t.Name
		default:
			return a
		}
	}
}

// isRust tells Rust's names from C++ ones: _R of its own scheme, or the older one that looks like C++ and ends in a
// hash, 17h and 16 digits.
func isRust(name string) bool {
	if strings.HasPrefix(name, "_R") {
		return true
	}
	if i := strings.LastIndex(name, "E."); i > 0 {
		name = name[:i+1]
	}
	return strings.HasPrefix(name, "_ZN") && len(name) > 23 && strings.HasSuffix(name, "E") &&
		name[len(name)-20:len(name)-17] == "17h"
}

// distinct drops strings equal to the one before and empty ones.
func distinct(s ...string) []string {
	out := s[:0]
	for _, v := range s {
		if v != "" && (len(out) == 0 || out[len(out)-1] != v) {
			out = append(out, v)
		}
	}
	return out
}
