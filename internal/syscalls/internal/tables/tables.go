// Package tables makes the tables of package syscalls: the numbers, arguments and constants of both machines in two
// texts. It is run by go generate.
//
// Numbers and most constants are those of golang.org/x/sys/unix, for each machine, so they follow the version in
// go.mod. What a kernel says of its arguments is in formats.txt, taken from a tracefs. What neither of them knows, how an
// argument is shown and what it points to, is written by hand in calls.txt and constants.txt.
package tables

import (
	"bufio"
	"cmp"
	_ "embed" // the sources
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed calls.txt
var callsText string

//go:embed constants.txt
var constantsText string

//go:embed formats.txt
var formatsText string

// machines are those of Go, in the order of the tables' columns.
var machines = [2]string{"amd64", "arm64"}

// Make returns the texts zcalls.txt and zconstants.txt, from the sources of golang.org/x/sys/unix in a directory.
func Make(unix string) (calls, constants string, err error) {
	var known [2]map[string]int64
	for i, m := range machines {
		if known[i], err = readConstants(unix, m); err != nil {
			return "", "", err
		}
	}
	groups, names, err := makeGroups(known)
	if err != nil {
		return "", "", err
	}
	calls, err = makeCalls(known, names)
	return calls, groups, err
}

var constantLine = regexp.MustCompile(`^\s+(\w+)\s+= (?:[\w.]+\()?(-?(?:0x[0-9a-f]+|\d+))\)?$`)

// readConstants returns the integer constants of a machine, system call numbers among them.
func readConstants(dir, machine string) (map[string]int64, error) {
	values := map[string]int64{}
	for _, name := range []string{
		"zerrors_linux.go", "zerrors_linux_" + machine + ".go", "ztypes_linux.go", "ztypes_linux_" + machine + ".go",
		"zsysnum_linux_" + machine + ".go",
	} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			if m := constantLine.FindStringSubmatch(s.Text()); m != nil {
				if v, err := strconv.ParseInt(m[2], 0, 64); err == nil {
					values[m[1]] = v
				} else if u, err := strconv.ParseUint(m[2], 0, 64); err == nil {
					values[m[1]] = int64(u)
				}
			}
		}
		f.Close()
	}
	return values, nil
}

// A constant has a value for each machine, or none.
type constant struct {
	name  string
	value [2]int64
	has   [2]bool
}

func (c *constant) text(i int) string {
	if !c.has[i] {
		return ""
	}
	return strconv.FormatInt(c.value[i], 10)
}

// lookup finds a constant that both machines, or one, have.
func lookup(known [2]map[string]int64, name string) (c constant, ok bool) {
	c.name = name
	for i := range known {
		c.value[i], c.has[i] = known[i][name]
		ok = ok || c.has[i]
	}
	return c, ok
}

// lines calls fn with the lines of a source that are not comments.
func lines(text string, fn func(line string) error) error {
	for i, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		if err := fn(line); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return nil
}

// makeGroups returns the constants by group, and the names of the groups.
func makeGroups(known [2]map[string]int64) (text string, names map[string]bool, err error) {
	names = map[string]bool{}
	var b strings.Builder
	err = lines(constantsText, func(line string) error {
		group, items, ok := strings.Cut(line, ":")
		if !ok || names[group] {
			return fmt.Errorf("%q: no group, or a second time", group)
		}
		names[group] = true
		list, err := expand(known, strings.Fields(items))
		if err != nil {
			return fmt.Errorf("%s: %w", group, err)
		}
		b.WriteString(group)
		for i := range list {
			c := &list[i]
			v := c.text(0)
			if a := c.text(1); a != v {
				v += "/" + a
			}
			fmt.Fprintf(&b, " %s=%s", c.name, v)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		return "", nil, fmt.Errorf("constants.txt: %w", err)
	}
	return b.String(), names, nil
}

// expand returns the constants that items name, each once.
func expand(known [2]map[string]int64, items []string) (list []constant, err error) {
	var without []string
	for _, it := range items {
		if it[0] == '-' {
			without = append(without, it[1:])
		}
	}
	seen := map[string]bool{}
	add := func(c constant) {
		if !seen[c.name] {
			seen[c.name] = true
			list = append(list, c)
		}
	}
	for _, it := range items {
		name, value, given := strings.Cut(it, "=")
		prefix, all := strings.CutSuffix(it, "*")
		switch {
		case it[0] == '-':
		case given:
			c, err := parseValue(name, value)
			if err != nil {
				return nil, err
			}
			add(c)
		case all:
			for _, c := range withPrefix(known, prefix, without) {
				add(c)
			}
		default:
			c, ok := lookup(known, it)
			if !ok {
				return nil, fmt.Errorf("%s is not in golang.org/x/sys/unix", it)
			}
			add(c)
		}
	}
	return list, nil
}

// parseValue reads 1, 1/2 or /2.
func parseValue(name, value string) (c constant, err error) {
	c.name = name
	one, two, differ := strings.Cut(value, "/")
	if !differ {
		two = one
	}
	for i, s := range [2]string{one, two} {
		if s == "" {
			continue
		}
		if c.value[i], err = strconv.ParseInt(s, 0, 64); err != nil {
			return c, err
		}
		c.has[i] = true
	}
	return c, nil
}

// withPrefix returns the constants whose names begin so, by value.
func withPrefix(known [2]map[string]int64, prefix string, without []string) (list []constant) {
	left := func(name string) bool {
		return slices.ContainsFunc(without, func(w string) bool {
			p, all := strings.CutSuffix(w, "*")
			return name == w || all && strings.HasPrefix(name, p)
		})
	}
	names := map[string]bool{}
	for i := range known {
		for name := range known[i] {
			if strings.HasPrefix(name, prefix) && !left(name) && !names[name] {
				names[name] = true
				c, _ := lookup(known, name)
				list = append(list, c)
			}
		}
	}
	slices.SortFunc(list, func(a, b constant) int {
		return cmp.Or(cmp.Compare(a.value[0], b.value[0]), cmp.Compare(a.value[1], b.value[1]), cmp.Compare(a.name, b.name))
	})
	return list
}
