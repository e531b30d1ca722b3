package record

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fentry-dev/fentry/symbol"
)

// Filter decides by name which functions are traced. A nil Filter matches all.
//
// A pattern is one of
//
//	name        the whole name
//	na*  *me  *am*  n?m[a-e]  the glob of ftrace's set_ftrace_filter; it covers the whole name, and * and ? take any
//	            character. [!a-e] and [^a-e] are characters outside the set, \ takes the next character as it is,
//	            and a [ without its ] is an ordinary character
//	/re/        a regular expression (RE2) that matches any part of the name; /re/i ignores case
//	net/http/...  functions of a Go package and of those below it, as go list has it: net/http.(*conn).serve
//	own         functions of package main and of the main module of a Go program, as its build information says; the
//	            name, where Go has not linked the image
//	image:pattern  a function of an image only: see [MatchImage]. A :: does not separate, and neither does a colon in
//	            brackets or behind a backslash: std::sort and f[abi:cxx11] are names of functions
//	!pattern    takes away what the patterns before it have chosen
//	@file       patterns from a file, one a line; empty lines and lines that begin with # are skipped
//
// A function's name is matched in every form in which people know it: the raw symbol; without the suffixes of
// compilers' clones (.constprop.0, .isra.0, .part.0); and for C++ and Rust the demangled signature, the name without
// its parameters, and that without template arguments. The type that signatures of templates begin with is no part of
// them, but a pattern that is a whole name may have it.
//
// Functions are asked about in an image ([Filter.In]); without one, only patterns without an image can match.
//
// Its methods are safe for concurrent use.
type Filter struct {
	include, exclude ruleSet
	images           sync.Map // of paths, *Filter: see In
}

// NewFilter returns a filter made from patterns that include functions and patterns that exclude them again. If
// include is empty or its first pattern begins with !, all functions are included to begin with.
func NewFilter(include, exclude []string) (*Filter, error) {
	return newFilter(include, exclude, false)
}

func newFilter(include, exclude []string, calls bool) (*Filter, error) {
	f := &Filter{}
	f.include.calls = calls
	if err := f.include.add(include); err != nil {
		return nil, err
	}
	if err := f.exclude.add(exclude); err != nil {
		return nil, err
	}
	f.include.start = len(f.include.rules) == 0 || f.include.rules[0].negated
	return f, nil
}

// In returns the filter for the functions of one image, known by its path: patterns for other images match nothing in it.
// What it has matched is known to f.
func (f *Filter) In(path string) *Filter {
	if f == nil || !f.include.imaged && !f.exclude.imaged {
		return f
	}
	in, ok := f.images.Load(path)
	if !ok {
		in, _ = f.images.LoadOrStore(path, &Filter{include: f.include.in(path), exclude: f.exclude.in(path)})
	}
	return in.(*Filter)
}

// Match reports whether the function with the given raw name, and perhaps others, is to be traced: a pattern that fits
// one of its names fits the function.
func (f *Filter) Match(name string, aliases ...string) bool {
	if f == nil || len(f.include.rules)+len(f.exclude.rules) == 0 {
		return true
	}
	names := append(make([]nameForms, 0, 4), nameForms{raw: name})
	for _, a := range aliases {
		names = append(names, nameForms{raw: a})
	}
	in := f.include.match(names)
	// Both are asked always, so that Unmatched knows which patterns fit nothing at all.
	out := f.exclude.match(names)
	return in && !out
}

// Names reports whether one of the patterns is the name of the function itself, and includes it.
func (f *Filter) Names(name string) bool {
	if !f.hasNames() {
		return false
	}
	forms := nameForms{raw: name}
	for form := range forms.all {
		for _, i := range f.include.exact[form] {
			if !f.include.rules[i].negated {
				return true
			}
		}
	}
	return false
}

// Chooses reports whether patterns include functions, rather than leave some out of all.
func (f *Filter) Chooses() bool { return f != nil && len(f.include.rules) > 0 }

// OfImage reports whether a pattern is for functions of certain images, and the image at a path is one of them.
func OfImage(pattern, path string) bool {
	image, _, err := cutImage(strings.TrimPrefix(pattern, "!"))
	return err == nil && image != "" && MatchImage(image, path)
}

// ChoosesImages reports whether a pattern is for functions of some images only.
func (f *Filter) ChoosesImages() bool { return f != nil && f.include.imaged }

// hasNames reports whether a pattern is a name.
func (f *Filter) hasNames() bool { return f != nil && len(f.include.exact) > 0 }

// Excludes reports whether a pattern takes the function with a name away.
func (f *Filter) Excludes(name string) bool {
	if f == nil {
		return false
	}
	return f.exclude.match([]nameForms{{raw: name}})
}

// namesCalls reports whether a pattern that includes functions is for calls into libraries.
func (f *Filter) namesCalls() bool {
	if f == nil {
		return false
	}
	for i := range f.include.rules {
		if r := &f.include.rules[i]; !r.negated && strings.HasSuffix(r.matcher.text, symbol.CallSuffix) {
			return true
		}
	}
	return false
}

// LeaveOutCalls has the filter leave out calls into libraries, unless a pattern that includes functions is for them: they
// are looked for because something else names them. It is called before the filter is used.
func (f *Filter) LeaveOutCalls() error {
	if f.namesCalls() {
		return nil
	}
	const all = "*" + symbol.CallSuffix
	if err := f.exclude.addOne(all, all, 0); err != nil {
		return err
	}
	f.exclude.bare = nil
	f.exclude.rules[len(f.exclude.rules)-1].hit.Store(true) // nobody has given it, so nobody wants to know
	return nil
}

// WithCalls returns a filter whose patterns that are whole names stand for the calls of libraries' functions of these
// names, too: malloc for malloc@plt.
func WithCalls(patterns []string) (*Filter, error) {
	return newFilter(patterns, nil, true)
}

// Own is the pattern of a Go program's own functions, see [Site.Own].
const Own = "own"

// MatchSite is like Match for s.Display(), which for a function without a symbol is its address, and s.Aliases. A
// function with s.Own is called [Own], too.
func (f *Filter) MatchSite(s *Site) bool {
	if s.Own {
		return f.Match(s.Display(), append(slices.Clip(s.Aliases), Own)...)
	}
	return f.Match(s.Display(), s.Aliases...)
}

// Unmatched returns the patterns, as they were given, that have matched no name so far. Patterns from a file are
// followed by " (FILE:LINE)".
func (f *Filter) Unmatched() []string {
	if f == nil {
		return nil
	}
	var out []string
	for _, s := range []*ruleSet{&f.include, &f.exclude} {
		for i := range s.rules {
			if r := &s.rules[i]; !r.hit.Load() {
				out = append(out, r.text)
			}
		}
	}
	return out
}

// ruleSet is a list of patterns in the order they were given; the last one that fits decides.
type ruleSet struct {
	start bool // for names no pattern fits
	rules []rule
	exact map[string][]int // rules that are whole names
	other []int            // the rest
	// bare are the patterns when there are few and each is an identifier: a name that demangles to just that has it in it,
	// as the manglings of C++ and Rust write identifiers out. Nil otherwise.
	bare []string
	// imaged: some of the rules are for certain images. They are in neither exact nor other but of a set that is for one
	// of these.
	imaged bool
	calls  bool // names stand for the calls of libraries' functions, too
}

type rule struct {
	text    string
	negated bool
	image   string // pattern of the image, "" for all
	matcher matcher
	hit     atomic.Bool
}

// maxListDepth bounds lists that name lists.
const maxListDepth = 8

func (s *ruleSet) add(patterns []string) error {
	s.exact = make(map[string][]int)
	if err := s.addAll(patterns, 0); err != nil {
		return err
	}
	const few = 8
	for i := range s.rules {
		if m := &s.rules[i].matcher; len(s.rules) > few || m.class != classWhole || !isIdentifier(m.text) {
			s.bare = nil
			break
		}
		s.bare = append(s.bare, s.rules[i].matcher.text)
	}
	return nil
}

// isIdentifier reports whether s is an identifier of ASCII characters.
func isIdentifier(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func (s *ruleSet) addAll(patterns []string, depth int) error {
	for _, p := range patterns {
		if err := s.addOne(p, p, depth); err != nil {
			return err
		}
	}
	return nil
}

func (s *ruleSet) addOne(pattern, text string, depth int) error {
	if file, ok := strings.CutPrefix(pattern, "@"); ok {
		return s.addFile(file, depth)
	}
	body, negated := strings.CutPrefix(pattern, "!")
	if body == "" {
		return fmt.Errorf("pattern %q: empty", text)
	}
	image, body, err := cutImage(body)
	if err != nil {
		return fmt.Errorf("pattern %q: %w", text, err)
	}
	m, err := newMatcher(body)
	if err != nil {
		return fmt.Errorf("pattern %q: %w", text, err)
	}
	s.rules = append(s.rules, rule{text: text, negated: negated, image: image, matcher: m})
	if s.imaged = s.imaged || image != ""; image == "" {
		s.use(len(s.rules) - 1)
	}
	return nil
}

// use makes rule i one of those that names are compared with.
func (s *ruleSet) use(i int) {
	if m := &s.rules[i].matcher; m.class == classWhole {
		s.exact[m.text] = append(s.exact[m.text], i)
		if s.calls {
			s.exact[m.text+symbol.CallSuffix] = append(s.exact[m.text+symbol.CallSuffix], i)
		}
	} else {
		s.other = append(s.other, i)
	}
}

// in returns the set for the functions of one image, which shares the rules and what they have matched.
func (s *ruleSet) in(path string) ruleSet {
	if !s.imaged {
		return *s
	}
	out := ruleSet{start: s.start, rules: s.rules, exact: map[string][]int{}, bare: s.bare, calls: s.calls}
	for i := range s.rules {
		if im := s.rules[i].image; im == "" || MatchImage(im, path) {
			out.use(i)
		}
	}
	return out
}

func (s *ruleSet) addFile(file string, depth int) error {
	if depth >= maxListDepth {
		return fmt.Errorf("pattern list %s: lists name lists more than %d deep", file, maxListDepth)
	}
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("pattern list: %w", err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if err := s.addOne(line, fmt.Sprintf("%s (%s:%d)", line, file, n), depth+1); err != nil {
			return err
		}
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("pattern list %s: %w", file, err)
	}
	return nil
}

// match decides by the names of a function.
func (s *ruleSet) match(names []nameForms) bool {
	best := -1
	for i := range names {
		best = max(best, s.last(&names[i]))
	}
	if best < 0 {
		return s.start
	}
	return !s.rules[best].negated
}

// last returns the last rule that fits a name, or -1 if none does.
func (s *ruleSet) last(forms *nameForms) int {
	best := -1
	if len(s.rules) == 0 {
		return best
	}
	hit := func(i int) {
		// A store only when it changes something: the flags are shared between goroutines.
		if !s.rules[i].hit.Load() {
			s.rules[i].hit.Store(true)
		}
		best = max(best, i)
	}
	for k := 0; ; k++ {
		if k == 1 && s.bare != nil &&
			!slices.ContainsFunc(s.bare, func(t string) bool { return strings.Contains(forms.raw, t) }) {
			break // nothing to demangle for
		}
		name, ok := forms.get(k)
		if !ok {
			for _, i := range s.exact[forms.typed] {
				hit(i)
			}
			break
		}
		for _, i := range s.exact[name] {
			hit(i)
		}
		for _, i := range s.other {
			if s.rules[i].matcher.match(name) {
				hit(i)
			}
		}
	}
	return best
}
