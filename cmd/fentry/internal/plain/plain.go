// Package plain makes text that is safe to print. Names come from programs and traces, which may be anybody's, and must
// not control the terminal.
package plain

import (
	"strings"
	"unicode"
)

// Printable replaces control characters.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}

// OneLine joins the lines of a message, because a message is one line.
func OneLine(s string) string {
	return Printable(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
}
