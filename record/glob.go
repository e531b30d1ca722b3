package record

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/fentry-dev/fentry/record/golang"
)

// matchClass is how a pattern is compared, decided once as ftrace does: most patterns need no glob.
type matchClass uint8

const (
	classWhole     matchClass = iota // name
	classPrefix                      // name*
	classSuffix                      // *name, and * alone
	classSubstring                   // *name*
	classGlob                        // anything with ? [ \ or a * inside
	classRegexp                      // /re/
	classPackages                    // path/...
)

// matcher is one pattern without its negation.
type matcher struct {
	class matchClass
	text  string // what is compared: the pattern without the stars of its class
	re    *regexp.Regexp
}

func newMatcher(p string) (matcher, error) {
	if p[0] == '/' {
		return newRegexp(p)
	}
	if path, ok := strings.CutSuffix(p, "/..."); ok && !strings.ContainsAny(p, "*?[]() ") {
		return matcher{class: classPackages, text: path}, nil
	}
	lead, tail := strings.HasPrefix(p, "*"), strings.HasSuffix(p, "*") && len(p) > 1
	body := strings.TrimPrefix(p, "*")
	if tail {
		body = body[:len(body)-1]
	}
	switch {
	case strings.ContainsAny(body, `*?[\`):
		if strings.Count(p, `\`)%2 == 1 && strings.HasSuffix(p, `\`) {
			return matcher{}, errors.New(`\ at the end takes no character`)
		}
		return matcher{class: classGlob, text: p}, nil
	case lead && tail:
		return matcher{class: classSubstring, text: body}, nil
	case lead:
		return matcher{class: classSuffix, text: body}, nil
	case tail:
		return matcher{class: classPrefix, text: body}, nil
	}
	return matcher{class: classWhole, text: p}, nil
}

func newRegexp(p string) (matcher, error) {
	end := strings.LastIndexByte(p, '/')
	if end == 0 {
		return matcher{}, errors.New("a regular expression ends with /")
	}
	expr, flags := p[1:end], p[end+1:]
	switch flags {
	case "":
	case "i":
		expr = "(?i)" + expr
	default:
		return matcher{}, fmt.Errorf("unknown flags %q after the regular expression: only i is known", flags)
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return matcher{}, err
	}
	return matcher{class: classRegexp, re: re}, nil
}

func (m *matcher) match(name string) bool {
	switch m.class {
	case classWhole:
		return name == m.text
	case classPrefix:
		return strings.HasPrefix(name, m.text)
	case classSuffix:
		return strings.HasSuffix(name, m.text)
	case classSubstring:
		return strings.Contains(name, m.text)
	case classRegexp:
		return m.re.MatchString(name)
	case classPackages:
		below, ok := strings.CutPrefix(golang.Package(name), m.text)
		return ok && (below == "" || below[0] == '/')
	}
	return glob(m.text, name)
}

// glob matches a whole name. When the pattern behind a star fails, only the last star is tried further: the characters
// before it already have the earliest place they can have. So the time is at most the product of both lengths.
func glob(p, s string) bool {
	backP, backS := -1, 0 // pattern behind the last star, and where in s it was tried
	i, k := 0, 0
	for k < len(s) {
		if i < len(p) {
			if p[i] == '*' {
				i++
				backP, backS = i, k
				continue
			}
			if ni, nk, ok := globOne(p, i, s, k); ok {
				i, k = ni, nk
				continue
			}
		}
		if backP < 0 {
			return false
		}
		backS++
		i, k = backP, backS
	}
	return strings.Trim(p[i:], "*") == ""
}

// globOne matches one element of the pattern at i, not a star, with one character of s at k.
func globOne(p string, i int, s string, k int) (ni, nk int, ok bool) {
	c, n := utf8.DecodeRuneInString(s[k:])
	switch p[i] {
	case '?':
		return i + 1, k + n, true
	case '[':
		if end, in, ok := globSet(p, i, c); ok {
			return end, k + n, in
		}
	case '\\':
		if i+1 < len(p) {
			i++
		}
	}
	// Bytes, not characters: names need not be UTF-8.
	return i + 1, k + 1, p[i] == s[k]
}

// globSet decides whether c is in the set that begins with the [ at i, and returns where the pattern goes on. ok is
// false when there is no closing ].
func globSet(p string, i int, c rune) (end int, in, ok bool) {
	j := i + 1
	negated := false
	if j < len(p) && (p[j] == '!' || p[j] == '^') {
		negated = true
		j++
	}
	for first := true; j < len(p); first = false {
		if p[j] == ']' && !first {
			return j + 1, in != negated, true
		}
		lo, n := utf8.DecodeRuneInString(p[j:])
		j += n
		hi := lo
		if j+1 < len(p) && p[j] == '-' && p[j+1] != ']' {
			hi, n = utf8.DecodeRuneInString(p[j+1:])
			j += 1 + n
		}
		if lo <= c && c <= hi {
			in = true
		}
	}
	return 0, false, false
}
