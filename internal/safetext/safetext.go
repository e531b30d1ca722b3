// Package safetext makes text that is safe to show. Names of functions, threads, sections and files, marks and messages
// about them come from programs and traces, which may be anybody's. Printed as they are, they could move the cursor,
// retitle or reprogram a terminal, hide what stands behind them, or make "gnp.exe" of "exe.png".
//
// Every writer of text uses [Line], every writer of JSON [AppendJSON] or [JSON]; there is no other place that decides
// what is safe.
package safetext

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// unsafeTables are the characters that do something, or cannot be seen: format characters, among them those that change
// the direction of text (Cf), separators of lines and paragraphs (Zl, Zp), and what fonts show as nothing
// (Default_Ignorable_Code_Point: Unicode 15, DerivedCoreProperties.txt). Control characters are tested for apart.
var unsafeTables = []*unicode.RangeTable{
	unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector,
}

// Safe tells whether a character is only shown: no control, no direction, and not invisible.
func Safe(r rune) bool {
	if r < 0x7f {
		return r >= ' '
	}
	return !unicode.IsControl(r) && !unicode.In(r, unsafeTables...)
}

// plain tells whether s is printable ASCII, which nearly everything is.
func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// Line returns s with a question mark in place of each character that is not safe to print, newlines included, and
// U+FFFD in place of each byte that is not UTF-8: bytes from 0x80 to 0x9f are control characters to some terminals.
func Line(s string) string {
	if plain(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if !Safe(r) {
			return '?'
		}
		return r
	}, s)
}

// Message joins the lines of a message to one, which is safe to print.
func Message(s string) string {
	if plain(s) {
		return s
	}
	return Line(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
}

const hex = "0123456789abcdef"

// AppendJSON appends s as a JSON string whose text is safe to print and which stands for s: what is not safe is escaped.
// Bytes that are not UTF-8 become U+FFFD, because JSON has no others.
func AppendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '"' || c == '\\':
				b = append(b, '\\', c)
			case c == '\n':
				b = append(b, `\n`...)
			case c == '\t':
				b = append(b, `\t`...)
			case c < ' ' || c == 0x7f:
				b = appendUnit(b, rune(c))
			default:
				b = append(b, c)
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		b = appendRune(b, r)
		i += n
	}
	return append(b, '"')
}

// appendRune appends a character, escaped if it is not safe.
func appendRune(b []byte, r rune) []byte {
	switch {
	case Safe(r):
		return utf8.AppendRune(b, r)
	case r < 0x10000:
		return appendUnit(b, r)
	}
	r -= 0x10000 // RFC 8259, section 7: a pair of surrogates
	return appendUnit(appendUnit(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
}

func appendUnit(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}

// JSON returns JSON text, such as encoding/json makes it, with everything escaped that is not safe to print. Outside of
// strings nothing but white space could be meant, so the text need not be understood.
func JSON(text []byte) []byte {
	i := 0
	for i < len(text) && text[i] < 0x7f {
		i++
	}
	if i == len(text) {
		return text
	}
	out := append(make([]byte, 0, len(text)+64), text[:i]...)
	for i < len(text) {
		if c := text[i]; c < 0x7f {
			out = append(out, c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		out = appendRune(out, r)
		i += n
	}
	return out
}

// JSONWriter returns a writer for encoders of JSON that passes on [JSON] of each write, which must not end inside a
// character, as those of encoding/json do not.
func JSONWriter(w io.Writer) io.Writer { return jsonWriter{w} }

type jsonWriter struct{ w io.Writer }

func (j jsonWriter) Write(b []byte) (int, error) {
	if _, err := j.w.Write(JSON(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}
