//go:build linux

package tracefs

// match tells whether a pattern matches a whole string, as the kernel's glob_match does (lib/glob.c): * stands for any
// string, ? for any character, [a-z] for one of a class and [!a-z] for one that is not in it, and \ takes the next
// character as it is. A bracket that is not closed is an ordinary character. Everything is bytes.
//
// Only the last * is ever gone back to, so it takes at most the product of both lengths.
func match(pattern, s string) bool {
	backPattern, backString := -1, 0
	p, i := 0, 0
	for {
		ok := false
		switch {
		case p == len(pattern):
			if i == len(s) {
				return true
			}
		case pattern[p] == '*':
			p++
			backPattern, backString = p, i
			continue
		case i == len(s):
			return false
		default:
			var size int
			ok, size = matchByte(pattern[p:], s[i])
			p += size
			i++
		}
		if !ok {
			if backPattern < 0 || backString >= len(s) {
				return false
			}
			backString++
			p, i = backPattern, backString
		}
	}
}

// matchByte matches one character with the part of a pattern that stands for one, of that size.
func matchByte(pattern string, c byte) (ok bool, size int) {
	switch pattern[0] {
	case '?':
		return true, 1
	case '\\':
		if len(pattern) == 1 {
			return c == 0, 1
		}
		return pattern[1] == c, 2
	case '[':
		if ok, size = matchClass(pattern, c); size > 0 {
			return ok, size
		}
	}
	return pattern[0] == c, 1
}

// matchClass matches a class; size is 0 if it is not closed.
func matchClass(pattern string, c byte) (ok bool, size int) {
	i, not := 1, false
	if i < len(pattern) && pattern[i] == '!' {
		i, not = 2, true
	}
	for first := i; i < len(pattern); {
		if pattern[i] == ']' && i > first {
			return ok != not, i + 1
		}
		lo := pattern[i]
		hi := lo
		i++
		if i+1 < len(pattern) && pattern[i] == '-' && pattern[i+1] != ']' {
			hi = pattern[i+1]
			i += 2
		}
		ok = ok || lo <= c && c <= hi
	}
	return false, 0
}
