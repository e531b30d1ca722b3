package syscalls

import (
	_ "embed" // the tables
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed zcalls.txt
var callsText string

//go:embed zconstants.txt
var constantsText string

// A Machine is an instruction set of which there is a table.
type Machine uint8

// The machines, by their names in Go.
const (
	AMD64 Machine = iota
	ARM64
	machines
)

// MachineOf returns the machine with the given name, as Go, ELF tools or the kernel call it; AMD64 if it is none of
// those that there are.
func MachineOf(name string) Machine {
	switch name {
	case "arm64", "aarch64", "AArch64":
		return ARM64
	}
	return AMD64
}

// A Call is a system call of a machine.
type Call struct {
	Name   string
	Number int
	Args   []Arg
	// Classes are those of strace, without the %, such as file or desc.
	Classes []string

	result  string
	machine Machine
}

// An Arg is an argument of a system call.
type Arg struct {
	Name string // as the kernel calls it
	Type string // in C
	spec
}

// spec says how an argument is shown, see internal/tables/calls.txt.
type spec struct {
	sign  byte   // of what it points to: '<' given, '>' filled in, '&' both; 0: it points to nothing
	kind  string // which printer
	group string // of constants
	count count  // of what it points to
}

// A count says how many elements there are.
type count struct {
	from countFrom
	arg  int
}

type countFrom uint8

const (
	countOne    countFrom = iota // there is one
	countArg                     // an argument says it
	countDeref                   // the word that an argument points to says it
	countResult                  // the result says it
)

// parseSpec reads an argument of the table.
func parseSpec(s string) (sp spec) {
	s = strings.TrimSuffix(s, "...")
	if strings.IndexByte("<>&", s[0]) >= 0 {
		sp.sign, s = s[0], s[1:]
	}
	if rest, n, ok := strings.Cut(strings.TrimSuffix(s, "]"), "["); ok {
		s = rest
		digits, deref := strings.CutPrefix(n, "*")
		arg, err := strconv.Atoi(digits)
		switch {
		case err != nil:
			sp.count.from = countResult
		case deref:
			sp.count = count{countDeref, arg}
		default:
			sp.count = count{countArg, arg}
		}
	}
	sp.kind, sp.group, _ = strings.Cut(strings.TrimSuffix(s, ")"), "(")
	return sp
}

// A table is the calls of one machine.
type table struct {
	byNumber []*Call // by number; nil: there is none
	byName   map[string]*Call
}

var tables = [machines]func() *table{
	sync.OnceValue(func() *table { return parseTable(AMD64) }), sync.OnceValue(func() *table { return parseTable(ARM64) }),
}

func parseTable(m Machine) *table {
	t := &table{byName: map[string]*Call{}}
	for line := range strings.Lines(callsText) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		nr, err := strconv.Atoi(f[1+m])
		if err != nil {
			continue // the other machine's
		}
		c := &Call{Name: f[0], Number: nr, result: f[4], machine: m}
		if f[3] != "-" {
			c.Classes = strings.Split(f[3], ",")
		}
		for _, s := range f[5:] {
			p := strings.Split(s, "|")
			c.Args = append(c.Args, Arg{Name: p[1], Type: p[2], spec: parseSpec(p[0])})
		}
		t.byName[c.Name] = c
		if nr >= len(t.byNumber) {
			t.byNumber = append(t.byNumber, make([]*Call, nr+1-len(t.byNumber))...)
		}
		t.byNumber[nr] = c
	}
	return t
}

// Call returns the system call with a number, nil if there is none.
func (m Machine) Call(number uint64) *Call {
	if t := tables[m](); number < uint64(len(t.byNumber)) {
		return t.byNumber[number]
	}
	return nil
}

// Named returns the system call with a name, nil if there is none.
func (m Machine) Named(name string) *Call { return tables[m]().byName[name] }

// NoReturn tells whether a call never ends: exit and exit_group.
func (c *Call) NoReturn() bool { return c.result == "none" }

// Calls returns all system calls, by number.
func (m Machine) Calls() []*Call {
	return slices.DeleteFunc(slices.Clone(tables[m]().byNumber), func(c *Call) bool { return c == nil })
}

// Name returns the name of a system call, such as openat, or syscall_0x1c8 for one that is not known.
func (m Machine) Name(number uint64) string {
	if c := m.Call(number); c != nil {
		return c.Name
	}
	return fmt.Sprintf("syscall_%#x", number)
}
