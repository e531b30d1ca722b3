package record

import (
	"debug/elf"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
)

// A program in which nothing can be traced was compiled without what leaves room at function entries. What to compile
// it with depends on who compiled it: gcc before 14 puts the table of -fpatchable-function-entry where linkers refuse
// it for C++ (docs/compiling.md), Rust has other options, Go and Java have none. The file says who it was: compilers
// sign the section .comment, and languages show in symbols and sections.

// A Source is what a program was made from, as far as its file shows it.
type Source struct {
	Language string // "C", "C++", "Rust", "Go", "Java": a Java launcher, whose methods are in no file
	Compiler string // "gcc", "clang" or "" if the file does not say; of C and C++ only
}

// SourceOf finds out what an image was made from.
func SourceOf(f *elfio.File) Source {
	var comment string
	for i := range f.Sections {
		switch f.Sections[i].Name {
		case ".gopclntab", ".go.buildinfo":
			return Source{Language: "Go"}
		case ".comment":
			if b, err := f.SectionData(i); err == nil {
				comment = string(b[:min(len(b), 1<<16)])
			}
		}
	}
	if strings.Contains(comment, "rustc version") {
		return Source{Language: "Rust"}
	}
	s := Source{Language: "C"}
	switch {
	case strings.Contains(comment, "clang version"): // beside that of gcc, from the files every program begins with
		s.Compiler = "clang"
	case strings.Contains(comment, "GCC:"):
		s.Compiler = "gcc"
	}
	for _, read := range []func() ([]elfio.Symbol, error){f.DynamicSymbols, f.Symbols} {
		syms, err := read()
		if err != nil {
			continue
		}
		for i := range syms {
			switch n := syms[i].Name; {
			case n == "JLI_Launch" || n == "JNI_CreateJavaVM":
				return Source{Language: "Java"}
			case strings.HasPrefix(n, "_Z"):
				s.Language = "C++"
			}
		}
	}
	return s
}

// Options returns the compiler options that make functions traceable, "" where the language has none: those that link
// with every linker, and among them those that cost least while a program is not traced.
func (s Source) Options(m elf.Machine) string {
	nops := "-fpatchable-function-entry=5"
	if m == elf.EM_AARCH64 {
		nops = "-fpatchable-function-entry=2"
	}
	switch {
	case s.Language == "Rust":
		return strings.Replace(nops, "-f", "-Z", 1)
	case s.Language == "Go" || s.Language == "Java":
		return ""
	case s.Language == "C" || s.Compiler == "clang":
		return nops
	case m == elf.EM_AARCH64:
		return "-pg"
	}
	return "-pg -mfentry"
}

// Advice says in a sentence how a program is made traceable.
func (s Source) Advice(m elf.Machine) string {
	o := s.Options(m)
	switch {
	case s.Language == "Go":
		return "Go's compiler leaves no room at function entries; C code in the program (cgo) can: CGO_CFLAGS='-g -O2 " +
			Source{Language: "C"}.Options(m) + "'"
	case s.Language == "Java":
		return "Java's methods are compiled while the program runs, and are in no file; what can be traced is native code: " +
			"compile it with " + Source{Language: "C"}.Options(m)
	case s.Language == "Rust":
		return "compile with RUSTFLAGS=" + o + " (nightly rustc), which costs nothing while the program is not traced"
	case strings.HasPrefix(o, "-pg"):
		return "compile with " + o + " and link without -pg; clang's " + Source{Language: "C"}.Options(m) +
			" costs nothing while the program is not traced, g++'s does not link"
	}
	return "compile with " + o + ", which costs nothing while the program is not traced"
}
