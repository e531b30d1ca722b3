package plain

import (
	"bytes"
	"debug/elf"
	"iter"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
)

// Runtimes that know their callers.
//
// While a function is traced, its return address is that of a thunk. Unwind tables say where the real one is, and
// whoever unwinds by them need not care. Some runtimes do not: for each call that compiled code makes they have a row in
// a table of their own, found by the return address, which says where pointers are. Go stops at an address that it does
// not know, and OCaml's and V8's collectors crash. HotSpot walks the stack of Java code from the return address of the function
// that this has called. It does not help to leave their own code alone, since what that calls is found the same way; with
// OCaml it does (ocaml.go).
//
// Such an image need not have symbols, but each of these runtimes has a text that no image without it has a use for. An
// image that merely mentions one is refused as well, which costs its trace.

// runtimes are texts in the data of images, and what they tell of.
var runtimes = []struct {
	text    string
	refusal Refusal
}{
	{"\xff Go buildinf:", GoImage},
	{"v8::ToLocalChecked", StackWalker},  // in a message of V8's
	{"gHotSpotVMStructs", StackWalker},   // a symbol that HotSpot has for debuggers
	{"com.oracle.svm.core", StackWalker}, // names of classes in native images of GraalVM
	{"Dart_Initialize", StackWalker},     // in a message of the Dart VM's
	{"DOTNET_gcServer", StackWalker},     // .NET, compiled ahead of time or as one file
	{measured, Measured},
}

// measured is a text of BoringSSL's cryptographic module, also where that is part of a Go program. The module computes a checksum
// of its code, and ends the program if that is not what it was at the build. Without symbols nothing shows where its code begins
// and ends.
const measured = "FIPS integrity test"

// monoImage is what images have that Mono has compiled ahead of time: Mono unwinds their stacks by tables of its own, and ends
// if a return address is in none. The runtime has the name as a text only, and is traced.
const monoImage = "mono_aot_file_info"

// Foreign says why no call of a function that an image imports can be intercepted; "": there is no such reason.
func Foreign(f *elfio.File) Refusal {
	why, ml := foreign(f)
	if why == "" && len(ml.code) > 0 {
		why = StackWalker // OCaml's code makes such calls, too
	}
	return why
}

// foreign says why no function of an image can be displaced; "": there is no such reason, but for OCaml's code.
func foreign(f *elfio.File) (Refusal, ocaml) {
	if why := foreignImage(f); why != "" {
		return why, ocaml{}
	}
	ml := ocamlIn(f)
	if ml.hidden {
		return StackWalker, ocaml{}
	}
	return "", ml
}

func foreignImage(f *elfio.File) Refusal {
	if isLoader(f) {
		return Loader
	}
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab", ".go.buildinfo"} {
		if f.SectionIndex(name) >= 0 {
			return GoImage
		}
	}
	if defines(f, monoImage) {
		return StackWalker
	}
	for b := range loaded(f, 0) {
		for _, r := range runtimes {
			if bytes.Contains(b, []byte(r.text)) {
				return r.refusal
			}
		}
	}
	return ""
}

// foreignC is Foreign for the C functions of a Go program.
func foreignC(f *elfio.File) Refusal {
	if contains(f, measured) {
		return Measured
	}
	return ""
}

// contains reports whether an image has a text.
func contains(f *elfio.File, text string) bool {
	for b := range loaded(f, 0) {
		if bytes.Contains(b, []byte(text)) {
			return true
		}
	}
	return false
}

// loaded are the parts of an image that are loaded from its file, with these flags.
func loaded(f *elfio.File, flags elf.ProgFlag) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, p := range f.Progs {
			if p.Type != elf.PT_LOAD || p.Flags&flags != flags || p.Filesz > uint64(len(f.Raw())) {
				continue
			}
			if b, err := f.Bytes(p.Vaddr, int(p.Filesz)); err == nil && !yield(b) {
				return
			}
		}
	}
}

// isLoader reports whether an image is a dynamic loader: it needs no other image, and has the function that code for
// thread-local memory calls. Its functions run before anything is relocated, itself included.
func isLoader(f *elfio.File) bool {
	dyn, err := f.Dynamic()
	if err != nil || dyn == nil || slices.ContainsFunc(dyn, func(d elfio.Dyn) bool { return d.Tag == elf.DT_NEEDED }) {
		return false
	}
	return defines(f, "__tls_get_addr")
}

// defines reports whether an image has a dynamic symbol.
func defines(f *elfio.File, name string) bool {
	syms, err := f.DynamicSymbols()
	return err == nil && slices.ContainsFunc(syms, func(s elfio.Symbol) bool { return s.Name == name && s.Section != 0 })
}
