package symbol

import (
	"fmt"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// Style says how much of a demangled name is shown.
type Style uint8

// The styles.
const (
	Simple Style = iota // name without parameters: ns::Foo::bar, <str as Trait>::f
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

// maxMangled is the longest name that is demangled. Names of real programs stay below; crafted ones can take time and
// memory far beyond their length.
const maxMangled = 64 << 10

// maxDemangled is the power of two a demangled name is cut at.
const maxDemangled = 16

// Mangled reports whether a name is one Demangle would try: C++ (_Z, ___Z and __Z of clang's blocks) or Rust (_R).
func Mangled(name string) bool {
	return strings.HasPrefix(name, "_Z") || strings.HasPrefix(name, "_R") ||
		strings.HasPrefix(name, "__Z") || strings.HasPrefix(name, "___Z")
}

// Demangle returns the name of a C++ or Rust symbol as in its source, and other names as they are. A version suffix
// (@GLIBCXX_3.4) is taken off first.
func Demangle(name string, style Style) string {
	name = BaseName(name)
	if style == No || !Mangled(name) || len(name) > maxMangled {
		return name
	}
	opts := []demangle.Option{demangle.MaxLength(maxDemangled)}
	if style == Simple {
		opts = append(opts, demangle.NoParams, demangle.NoEnclosingParams, demangle.NoClones)
	}
	out, err := demangle.ToString(name, opts...)
	if err != nil {
		return name
	}
	return out
}
