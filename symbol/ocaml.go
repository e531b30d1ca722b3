package symbol

import (
	"strconv"
	"strings"
)

// Names of OCaml's functions: caml, the path of modules with two underscores between (from 5.1 on a point before the function),
// and the function's name with a number that tells apart those of one name. What C does not allow in names is $ and two
// hexadecimal digits.

// isOCaml reports whether a name may be such.
func isOCaml(name string) bool {
	const prefix = "caml"
	return len(name) > len(prefix) && strings.HasPrefix(name, prefix) && name[len(prefix)] >= 'A' && name[len(prefix)] <= 'Z' &&
		(strings.Contains(name, "__") || strings.Contains(name, "."))
}

// ocamlNames returns a function's name as in its source, Stdlib.List.iter, and with its number, Stdlib.List.iter_261. A function
// without a name in the source, fun, has its number in both. ok is false for what is no such name.
func ocamlNames(name string) (short, full string, ok bool) {
	var b strings.Builder
	for s := name[len("caml"):]; s != ""; {
		switch {
		case strings.HasPrefix(s, "__") && len(s) > 2 && b.Len() > 0:
			b.WriteByte('.')
			s = s[2:]
			continue
		case s[0] == '$' && len(s) >= 3:
			if c, err := strconv.ParseUint(s[1:3], 16, 8); err == nil && c > ' ' && c < 0x7f {
				b.WriteByte(byte(c))
				s = s[3:]
				continue
			}
		}
		b.WriteByte(s[0])
		s = s[1:]
	}
	full = b.String()
	if i := strings.LastIndexByte(full, '.'); i <= 0 || i+1 == len(full) {
		return name, name, false
	}
	short = full
	if i := strings.LastIndexByte(full, '_'); i > 0 && !strings.HasSuffix(full[:i], ".fun") && !strings.HasSuffix(full[:i], ".") &&
		i+1 < len(full) && strings.Trim(full[i+1:], "0123456789") == "" {
		short = full[:i]
	}
	return short, full, true
}
