//go:build linux

package tracefs

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A set is functions that a filter names. It is not changed once it is in use.
type set struct {
	in      []bool // by function; nil: none
	size    int
	pending []string // PATTERN:mod:MODULE of modules that are not loaded
}

// has tells whether a function is in the set.
func (s *set) has(fn int) bool { return s.size > 0 && fn >= 0 && fn < len(s.in) && s.in[fn] }

// empty tells whether nothing was ever put into the set.
func (s *set) empty() bool { return s.size == 0 && len(s.pending) == 0 }

func (s *set) clone() *set { return &set{slices.Clone(s.in), s.size, slices.Clone(s.pending)} }

// put puts a function into the set, or takes it out.
func (s *set) put(fn, all int, in bool) {
	if len(s.in) < all {
		s.in = append(s.in, make([]bool, all-len(s.in))...)
	}
	if s.in[fn] != in {
		s.in[fn] = in
		if in {
			s.size++
		} else {
			s.size--
		}
	}
}

// matching returns the functions that a pattern matches, in certain modules; nil: in all, and in the program. What begins with a
// digit is a number, in any base, whatever is behind it: the place of a function in available_filter_functions, from 1 on.
func (f *functions) matching(pattern string, module func(string) bool) (which []int) {
	if pattern != "" && pattern[0] >= '0' && pattern[0] <= '9' {
		digits, base := radix(pattern, 0)
		digits = digits[:len(digits)-len(strings.TrimLeft(digits, digitsOf[base]))]
		n, _ := strconv.ParseUint(digits, base, 64) // the largest one if it is too large
		for i := range f.all {
			if f.listed(i) {
				if n--; n == 0 {
					return []int{i}
				}
			}
		}
		return nil
	}
	for i := range f.all {
		if module != nil && !module(f.all[i].Module) {
			continue
		}
		if match(pattern, f.all[i].Name) {
			which = append(which, i)
		}
	}
	return which
}

// modules returns which modules are meant behind :mod: as a pattern, "" for any, or with ! in front all others and the
// program.
func modules(text string) func(string) bool {
	pattern, not := strings.CutPrefix(text, "!")
	return func(module string) bool {
		return (module != "" && (pattern == "" || match(pattern, module))) != not
	}
}

// loaded tells whether a module among some is loaded, or was.
func (f *functions) loaded(module func(string) bool) bool {
	return slices.ContainsFunc(f.all, func(fn Function) bool { return module(fn.Module) })
}

// apply changes a set by a word that is written to a filter's file: PATTERN, !PATTERN, PATTERN:mod:MODULE. An error is
// EINVAL: nothing matches.
func (f *functions) apply(s *set, word string) error {
	pattern, not := strings.CutPrefix(word, "!")
	pattern, module, ofModule := strings.Cut(pattern, ":mod:")
	if pattern == "" {
		pattern = "*"
		if !ofModule {
			return syscall.EINVAL
		}
	}
	var in func(string) bool
	if ofModule {
		in = modules(module)
	}
	if ofModule && !f.loaded(in) {
		text := pattern + ":mod:" + module
		at := slices.Index(s.pending, text)
		switch {
		case module == "" || not && at < 0:
			return syscall.EINVAL
		case not:
			s.pending = slices.Delete(s.pending, at, at+1)
		case at < 0 && len(s.pending) < mostPending:
			s.pending = append(s.pending, text)
		}
		return nil
	}
	which := f.matching(pattern, in)
	if len(which) == 0 {
		return syscall.EINVAL
	}
	for _, fn := range which {
		s.put(fn, len(f.all), !not)
	}
	return nil
}

// come returns a set in which what waits for modules that are there now is applied.
func (f *functions) come(s *set) *set {
	if len(s.pending) == 0 {
		return s
	}
	next := s.clone()
	next.pending = nil
	for _, word := range s.pending {
		_ = f.apply(next, word) // a module without such functions leaves nothing, as in the kernel
	}
	return next
}

// mostPending bounds what is remembered of modules that may come.
const mostPending = 1000

// list is the text of a filter's file; none is what stands there for an empty set.
func (f *functions) list(s *set, none string) []byte {
	var b bytes.Buffer
	if s.empty() {
		b.WriteString("#### " + none + " ####\n")
	}
	for i := range f.all {
		if s.has(i) && f.listed(i) {
			b.WriteString(f.line(i))
		}
	}
	for _, p := range s.pending {
		b.WriteString(p + "\n")
	}
	return b.Bytes()
}

// line is a function's line in a list.
func (f *functions) line(i int) string {
	if m := f.all[i].Module; m != "" {
		return f.all[i].Name + " [" + m + "]\n"
	}
	return f.all[i].Name + "\n"
}
