package syscalls

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Filter says which system calls are meant. The zero value means all.
type Filter struct {
	steps []step
}

// A step adds or takes away the calls that match.
type step struct {
	not   bool
	match func(c *Call) bool // c is nil for one that is not known
}

// classNames are the classes that --syscalls takes, those of strace.
var classNames = []string{
	"%clock", "%creds", "%desc", "%file", "%fstat", "%fstatat", "%fstatfs", "%ipc", "%lstat", "%memory", "%net",
	"%network", "%process", "%signal", "%%stat", "%stat", "%%statfs", "%statfs",
}

// ClassNames returns the classes that a filter can name.
func ClassNames() []string { return slices.Clone(classNames) }

// ParseFilter reads a list of system calls between commas: names, %classes as strace has them, /regular expressions/,
// and "all"; what has a ! in front is taken away. Later items win; a list that begins with a ! begins with all. An item
// that names nothing on any machine is an error.
func ParseFilter(s string) (*Filter, error) {
	f := &Filter{}
	for i, item := range splitItems(s) {
		name, not := strings.CutPrefix(item, "!")
		if name == "" {
			return nil, fmt.Errorf("%q: an empty item", s)
		}
		match, err := matcher(name)
		if err != nil {
			return nil, err
		}
		if i == 0 && not {
			f.steps = append(f.steps, step{match: func(*Call) bool { return true }})
		}
		f.steps = append(f.steps, step{not, match})
	}
	return f, nil
}

// splitItems splits at the commas that are not inside a regular expression.
func splitItems(s string) (items []string) {
	for s != "" {
		end := strings.IndexByte(s, ',')
		if body := strings.TrimPrefix(s, "!"); strings.HasPrefix(body, "/") {
			if i := strings.Index(body[1:], "/,"); i >= 0 {
				end = len(s) - len(body) + 1 + i + 1
			} else {
				end = -1
			}
		}
		if end < 0 {
			return append(items, s)
		}
		items = append(items, s[:end])
		if s = s[end+1:]; s == "" {
			items = append(items, "")
		}
	}
	return items
}

// matcher returns what an item means.
func matcher(name string) (func(*Call) bool, error) {
	switch {
	case name == "all":
		return func(*Call) bool { return true }, nil
	case name[0] == '%':
		if !slices.Contains(classNames, name) {
			return nil, fmt.Errorf("no class %s of system calls; there are %s", name, strings.Join(classNames, ", "))
		}
		class := name[1:]
		if class == "net" {
			class = "network"
		}
		return func(c *Call) bool { return c != nil && slices.Contains(c.Classes, class) }, nil
	case name[0] == '/':
		if len(name) < 2 || name[len(name)-1] != '/' {
			return nil, fmt.Errorf("%s: no / at the end of the regular expression", name)
		}
		re, err := regexp.Compile(name[1 : len(name)-1])
		if err != nil {
			return nil, err
		}
		return known(func(c *Call) bool { return c != nil && re.MatchString(c.Name) }, name)
	}
	return known(func(c *Call) bool { return c != nil && c.Name == name }, name)
}

// known returns match if it is for a call that some machine has.
func known(match func(*Call) bool, name string) (func(*Call) bool, error) {
	for m := range machines {
		if slices.ContainsFunc(m.Calls(), match) {
			return match, nil
		}
	}
	return nil, fmt.Errorf("no system call %s", name)
}

// Match tells whether a call is meant. What the table does not know is meant if all are.
func (f *Filter) Match(m Machine, number uint64) bool { return f.matches(m.Call(number)) }

func (f *Filter) matches(c *Call) bool {
	is := len(f.steps) == 0
	for _, s := range f.steps {
		if s.match(c) {
			is = !s.not
		}
	}
	return is
}
