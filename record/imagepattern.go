package record

import (
	"errors"
	"path"
	"strings"
)

// Images in patterns.
//
// The file of a library has a version in its name, and people know it without: the same library is libz.so.1.2.13 in a
// directory, libz.so.1 to the programs that load it and libz to those who speak of it. So a pattern is compared with
// each of these.

// MatchImage reports whether a pattern, a glob as in [Filter], names the image at a path: it matches the name of the
// file, with all of its version, a part of it or none, or with .so left out as well; or, if there is a slash in it, the
// whole path. So libz, libz.so, libz.so.1, libz* and */libz.so.1.2.13 match /usr/lib/libz.so.1.2.13.
func MatchImage(pattern, file string) bool {
	if strings.Contains(pattern, "/") {
		return glob(pattern, file)
	}
	base := path.Base(file)
	if glob(pattern, base) {
		return true
	}
	so := strings.Index(base, ".so.")
	if so < 0 {
		stem, ok := strings.CutSuffix(base, ".so")
		return ok && glob(pattern, stem)
	}
	for k := len(base) - 1; k > so; k-- {
		if base[k] == '.' && glob(pattern, base[:k]) {
			return true
		}
	}
	return glob(pattern, base[:so])
}

// cutImage cuts a pattern into that of an image, "" if there is none, and that of functions. A colon separates them that
// is not one of a pair, in brackets, behind a backslash or in a regular expression.
func cutImage(p string) (image, funcs string, err error) {
	if last := strings.LastIndexByte(p, '/'); last > 0 && p[0] == '/' && !strings.Contains(p[last:], ":") {
		return "", p, nil // a regular expression, with its flags
	}
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			if i+1 < len(p) && p[i+1] != '[' { // a bracket that is taken as it is closes, too
				i++
			}
		case '[':
			if end := strings.IndexByte(p[i:], ']'); end > 0 {
				i += end
			}
		case ':':
			n := 1
			for i+n < len(p) && p[i+n] == ':' {
				n++
			}
			if n%2 == 0 {
				i += n - 1
				continue
			}
			if image, funcs = p[:i], p[i+1:]; image == "" || funcs == "" {
				return "", "", errors.New("IMAGE:FUNCTION needs both; * is any")
			}
			return image, funcs, nil
		}
	}
	return "", p, nil
}
