package symbol

// Names of C++ as people write them. A symbol spells out what its author never wrote:
//
//	std::vector<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >, std::allocator<...> >
//
// is std::vector<std::string>. What can be left out is decided by the standard library's own defaults, so that nothing
// that distinguishes two functions is lost: an argument goes only if it is what the argument's absence means.
//
//  1. The namespaces of library versions are left out: std::__cxx11 (libstdc++), std::__1 and std::__ndk1 (libc++).
//  2. Template arguments at the end that equal their defaults are left out: allocators, comparisons, hashes, character
//     traits, deleters, for the templates of templateDefaults.
//  3. What then has a name of its own gets it: std::basic_string<char> is std::string (templateNames).
//  4. Closing brackets stand together: >> in place of > >.
//
// The text is parsed as far as brackets go. A name that does not come out even, such as an expression with a comparison
// of an unusual form, stays as it is.

import (
	"bytes"
	"strings"
)

// templateDefaults are the defaults of the last arguments of templates in std, from the first one that has a default on.
// $1 and $2 are the first arguments ([containers], [string.classes], [unique.ptr] of the C++ standard).
var templateDefaults = map[string][]string{
	"vector":              {"", "std::allocator<$1>"},
	"deque":               {"", "std::allocator<$1>"},
	"list":                {"", "std::allocator<$1>"},
	"forward_list":        {"", "std::allocator<$1>"},
	"set":                 {"", "std::less<$1>", "std::allocator<$1>"},
	"multiset":            {"", "std::less<$1>", "std::allocator<$1>"},
	"map":                 {"", "", "std::less<$1>", "std::allocator<std::pair<$1 const, $2>>"},
	"multimap":            {"", "", "std::less<$1>", "std::allocator<std::pair<$1 const, $2>>"},
	"unordered_set":       {"", "std::hash<$1>", "std::equal_to<$1>", "std::allocator<$1>"},
	"unordered_multiset":  {"", "std::hash<$1>", "std::equal_to<$1>", "std::allocator<$1>"},
	"unordered_map":       {"", "", "std::hash<$1>", "std::equal_to<$1>", "std::allocator<std::pair<$1 const, $2>>"},
	"unordered_multimap":  {"", "", "std::hash<$1>", "std::equal_to<$1>", "std::allocator<std::pair<$1 const, $2>>"},
	"stack":               {"", "std::deque<$1>"},
	"queue":               {"", "std::deque<$1>"},
	"priority_queue":      {"", "std::vector<$1>", "std::less<$1>"},
	"unique_ptr":          {"", "std::default_delete<$1>"},
	"basic_string":        {"", "std::char_traits<$1>", "std::allocator<$1>"},
	"basic_string_view":   {"", "std::char_traits<$1>"},
	"basic_ios":           {"", "std::char_traits<$1>"},
	"basic_streambuf":     {"", "std::char_traits<$1>"},
	"basic_istream":       {"", "std::char_traits<$1>"},
	"basic_ostream":       {"", "std::char_traits<$1>"},
	"basic_iostream":      {"", "std::char_traits<$1>"},
	"basic_filebuf":       {"", "std::char_traits<$1>"},
	"basic_ifstream":      {"", "std::char_traits<$1>"},
	"basic_ofstream":      {"", "std::char_traits<$1>"},
	"basic_fstream":       {"", "std::char_traits<$1>"},
	"basic_stringbuf":     {"", "std::char_traits<$1>", "std::allocator<$1>"},
	"basic_istringstream": {"", "std::char_traits<$1>", "std::allocator<$1>"},
	"basic_ostringstream": {"", "std::char_traits<$1>", "std::allocator<$1>"},
	"basic_stringstream":  {"", "std::char_traits<$1>", "std::allocator<$1>"},
	"istreambuf_iterator": {"", "std::char_traits<$1>"},
	"ostreambuf_iterator": {"", "std::char_traits<$1>"},
}

// templateNames are the names of templates called basic_... for characters ([string.classes], [iostream.forward]); what
// follows the prefix is the rest of the name.
var templateNames = map[string]string{
	"char": "", "wchar_t": "w", "char8_t": "u8", "char16_t": "u16", "char32_t": "u32",
}

// versionNamespaces are inline namespaces that are left out.
var versionNamespaces = []string{"std::__cxx11::", "std::__1::", "std::__ndk1::"}

// abbreviate shortens the demangled name of a C++ function.
func abbreviate(name string) string {
	if !strings.Contains(name, "std::") {
		return name
	}
	p := abbreviator{in: name}
	out, ok := p.text(0, 0)
	if !ok || p.at < len(name) {
		return name
	}
	return out
}

// maxNesting is how deep brackets are followed.
const maxNesting = 256

// An abbreviator copies a name, bracket by bracket.
type abbreviator struct {
	in string
	at int
}

// text copies up to the bracket that closes, which it leaves; 0: to the end. Inside of template arguments, where closing
// is '>', it stops at commas, too. ok is false if brackets do not match.
func (p *abbreviator) text(closing byte, depth int) (out string, ok bool) {
	if depth > maxNesting {
		return "", false
	}
	var b []byte
	word := 0 // where the qualified name that ends here begins in b
	for p.at < len(p.in) {
		c := p.in[p.at]
		switch {
		case c == closing || c == ',' && closing == '>':
			return string(b), true
		case isWord(c):
			if len(b) == word || isWord(b[len(b)-1]) || b[len(b)-1] == ':' || b[len(b)-1] == '>' {
				break
			}
			word = len(b)
		case c == ':':
		case c == '<' && len(b) > 0 && isWord(b[len(b)-1]):
			args, ok := p.arguments(depth)
			if !ok {
				return "", false
			}
			b = append(b[:word], shortTemplate(string(b[word:]), args)...)
			continue
		case c == '(' || c == '[' || c == '{':
			p.at++
			inner, ok := p.text(closers[c], depth+1)
			if !ok || p.at >= len(p.in) {
				return "", false
			}
			b = append(append(append(b, c), inner...), p.in[p.at])
			p.at++
			word = len(b)
			continue
		case c == ')' || c == ']' || c == '}' || c == '>' && closing == 0:
			return "", false
		case c == '-' && strings.HasPrefix(p.in[p.at:], "->"):
			b = append(b, c)
			p.at++
			c = '>'
		}
		b = append(b, c)
		p.at++
		if !isWord(c) && c != ':' {
			word = len(b)
		}
		if op := p.operator(b[word:]); op != "" {
			b = append(b, op...)
			if p.at < len(p.in) && p.in[p.at] == '<' {
				args, ok := p.arguments(depth)
				if !ok {
					return "", false
				}
				b = append(b, shortTemplate("", args)...)
			}
			word = len(b)
		}
		b = withoutVersion(b, word)
	}
	return string(b), closing == 0
}

var closers = map[byte]byte{'(': ')', '[': ']', '{': '}'}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// operators are the names behind the word operator that are no words, longer ones before those that they begin with.
// Before the arguments of a template, those that end in < have a blank, which is part of them here.
var operators = []string{
	"<=>", "<<=", ">>=", "->*", "<< ", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "++", "--", "->", "+=", "-=", "*=",
	"/=", "%=", "&=", "|=", "^=", "()", "[]", "< ", "<", ">", "=", "!", "+", "-", "*", "/", "%", "&", "|", "^", "~", ",",
}

// operator takes the rest of an operator's name, if word is the beginning of one.
func (p *abbreviator) operator(word []byte) string {
	before, ok := bytes.CutSuffix(word, []byte("operator"))
	if !ok || len(before) > 0 && before[len(before)-1] != ':' {
		return ""
	}
	for _, op := range operators {
		if strings.HasPrefix(p.in[p.at:], op) {
			p.at += len(op)
			return op
		}
	}
	return ""
}

// arguments takes template arguments, from the opening bracket on.
func (p *abbreviator) arguments(depth int) (args []string, ok bool) {
	for p.at < len(p.in) && p.in[p.at] != '>' {
		p.at++ // < or ,
		for p.at < len(p.in) && p.in[p.at] == ' ' {
			p.at++
		}
		arg, ok := p.text('>', depth+1)
		if !ok {
			return nil, false
		}
		args = append(args, strings.TrimRight(arg, " "))
	}
	p.at++
	return args, p.at <= len(p.in)
}

// withoutVersion takes the namespace of a library's version off the end of b.
func withoutVersion(b []byte, word int) []byte {
	if b == nil || b[len(b)-1] != ':' {
		return b
	}
	for _, v := range versionNamespaces {
		if string(b[word:]) == v {
			return b[:word+len("std::")]
		}
	}
	return b
}

// shortTemplate returns a template with its arguments, as short as it can be.
func shortTemplate(name string, args []string) string {
	base, isStd := strings.CutPrefix(name, "std::")
	if isStd {
		args = withoutDefaults(templateDefaults[base], args)
		if rest, basic := strings.CutPrefix(base, "basic_"); basic && len(args) == 1 {
			if prefix, known := templateNames[args[0]]; known && templateDefaults[base] != nil {
				return "std::" + prefix + rest
			}
		}
	}
	return name + "<" + strings.Join(args, ", ") + ">"
}

// withoutDefaults drops arguments at the end that equal their defaults.
func withoutDefaults(defaults, args []string) []string {
	if len(args) > len(defaults) {
		return args
	}
	for n := len(args) - 1; n > 0 && defaults[n] != ""; n-- {
		want := strings.ReplaceAll(defaults[n], "$1", args[0])
		if len(args) > 1 {
			want = strings.ReplaceAll(want, "$2", args[1])
		}
		if args[n] != want {
			break
		}
		args = args[:n]
	}
	return args
}
