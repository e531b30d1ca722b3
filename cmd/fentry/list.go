package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/record"
)

type listCmd struct {
	long     bool
	json     bool
	filter   []string
	notrace  []string
	srcline  bool
	plain    plainFlag
	libcalls bool
	runtime  bool
	syscalls bool
	demangle demangleFlag
}

func newListCmd(a *app) *cobra.Command {
	var c listCmd
	cmd := &cobra.Command{
		Use:   "list [options] PROGRAM...",
		Short: "list the functions of a program that can be traced",
		Long: `list prints the names of the functions of a program that can be traced, in order
of address. With -l it prints all functions, each with what the compiler left at
its entry, or the reason why it cannot be traced. The exit status is 1 if patterns
are given and select no function of any program.

A compiler prepares the functions of a C program for tracing with
-fpatchable-function-entry=5 (=2 on arm64), which costs nothing while the program
is not traced. C++ needs clang for that; with g++, compile with -pg -mfentry (-pg
on arm64) and link without -pg. docs/compiling.md has more. In a program without
such functions nearly all others can be traced: a function's first instructions
are moved, if it can be proven that nothing notices. They are listed as plain;
--plain lists them for any program. Calls of libraries' functions are listed with
--libcalls, as strlen@plt. Parts of functions that compilers have moved away are
not counted. Programs in which nothing can be traced are told what applies to
them.

Calls that the compiler has made part of their callers are not recorded. Below a Go
function -l lists those in it (inlined), each with those inside it.

With --syscalls it lists the places where the image itself calls the kernel; most
programs leave that to the C library. A call stays where it is, and is not
recorded, if control does not provably come to it (not-reached), if it is between
two labels that something compares with the program counter (address-taken; those
of the C libraries at which threads can be cancelled are recorded, and listed, at
their callers), if it
returns from a signal handler (signal-return) or unmaps its own stack
(stack-gone; in Go programs: ends a thread), or gives a thread its pointer
(no-thread-pointer), if it is inside the range of an exception's handler
(exception-handler) or leaves flags to what follows (flags-live), or if something
jumps to what would have to move with it (jump-into-site).`,
		Example: `  fentry list ./prog                     names, one per line
  fentry list -l ./prog                  kind, address, size; reasons
  fentry list /usr/bin/git               an installed program
  fentry list --libcalls ./prog          strlen@plt and other calls into libraries
  fentry list --syscalls -l ./prog       system calls: where, and which are not recorded
  fentry list -F 'parse_*' ./prog        what would -F 'parse_*' trace?
  fentry list -l ./prog | grep no-site   what was compiled without -pg?
  fentry list --json -l ./prog | jq -r 'select(.reason) | .name'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(a, cmd, args) },
	}
	f := cmd.Flags()
	f.BoolVarP(&c.long, "long", "l", false, "print all functions: kind of site, address, size, reason")
	f.BoolVar(&c.srcline, "srcline", false, "show where functions begin in the source (needs debug information; Go programs need none)")
	f.BoolVar(&c.json, "json", false, "one JSON object per line, one per function")
	addPatternFlags(cmd, &c.filter, &c.notrace, "list")
	c.plain.add(cmd, "list")
	addLibraryCalls(cmd, &c.libcalls, "list")
	addRuntime(cmd, &c.runtime, "list")
	f.BoolVar(&c.syscalls, "syscalls", false,
		"list the system calls instead, with -l also those that are not recorded, and why")
	c.demangle.add(cmd)
	return cmd
}

// addPatternFlags adds -F and -N; verb is what happens to matching functions.
func addPatternFlags(cmd *cobra.Command, filter, notrace *[]string, verb string) {
	f := cmd.Flags()
	f.StringArrayVarP(filter, "filter", "F", nil,
		verb+" only functions that match `PAT` (glob, /regex/, !PAT, @file; Go: net/http/..., own; repeatable)")
	f.StringArrayVarP(notrace, "notrace", "N", nil, "do not "+verb+" functions that match `PAT` (repeatable)")
}

func (c *listCmd) run(a *app, cmd *cobra.Command, paths []string) (err error) {
	var sel *record.Filter
	if len(c.filter)+len(c.notrace) > 0 {
		if sel, err = record.NewFilter(c.filter, c.notrace); err != nil {
			return usagef(cmd, "%v", err)
		}
	}
	out, err := a.open()
	if err != nil {
		return err
	}
	defer func() { err = out.close(err) }()
	if c.syscalls && (sel != nil || c.srcline) {
		return usagef(cmd, "--syscalls does not go with -F, -N and --srcline")
	}
	matched := false
	for i, path := range paths {
		if len(paths) > 1 && !c.json {
			if i > 0 {
				fmt.Fprintln(out)
			}
			fmt.Fprintf(out, "%s\n", out.paint.with(sgrBold, printable(path)+":"))
		}
		if c.syscalls {
			if path, err = findProgram(path); err == nil {
				err = c.listSyscalls(a, out, path)
			}
			if err != nil {
				return err
			}
			continue
		}
		found, err := c.listFile(a, out, path, sel)
		if err != nil {
			return err
		}
		matched = matched || found
	}
	for _, p := range sel.Unmatched() {
		a.notef("fentry: warning: pattern %q matches no function", p)
	}
	if sel != nil && !matched {
		return &exitError{Code: exitFailed, Err: errors.New("no function is selected")}
	}
	return nil
}

// listFile lists one program. found is false if it has no function that sel
// matches.
func (c *listCmd) listFile(a *app, out *output, path string, sel *record.Filter) (found bool, err error) {
	if path, err = findProgram(path); err != nil {
		return false, err
	}
	im, err := openImage(path)
	if err != nil {
		return false, err
	}
	defer im.close()
	sel = sel.In(path)
	sites, err := im.sites(a.symbols(), record.Options{Plain: c.plain.Plain, LibraryCalls: c.libcalls, Named: sel, GoRuntime: c.runtime})
	if err != nil {
		return false, err
	}
	if sel != nil {
		sites = slices.DeleteFunc(sites, func(s record.Site) bool { return !sel.MatchSite(&s) })
	}
	source := noSource
	if c.srcline {
		source = c.sources(a, im, path)
	}
	switch {
	case c.json:
		err = c.writeJSON(out.Writer, sites, source, c.inlined(im))
	case c.long:
		err = c.writeLong(out, sites, source, c.inlined(im))
	default:
		for i := range sites {
			if s := &sites[i]; s.Traceable() {
				line := source(s.Func)
				if line != "" {
					line = "  " + out.paint.with(sgrDim, line)
				}
				fmt.Fprintf(out, "%s%s\n", printable(c.demangle.name(s.Display())), line)
			}
		}
	}
	if err != nil {
		return false, err
	}
	if err := out.Flush(); err != nil {
		return false, err
	}
	a.notef("%s: %s", path, summary(sites))
	if len(sites) > 0 && sel == nil && !slices.ContainsFunc(sites, func(s record.Site) bool { return s.Traceable() }) {
		if refused := record.GoRefusal(im.File); refused != "" {
			a.notef("not traced: %s", refused)
		}
		if !slices.ContainsFunc(sites, ofImage) {
			a.notef("%s", record.SourceOf(im.File).Advice(im.Header.Machine))
		}
	}
	return len(sites) > 0, nil
}

// ofImage reports whether a function is left alone because of what its image is, however that is compiled.
func ofImage(s record.Site) bool {
	return s.Reason == record.ReasonLoader || s.Reason == record.ReasonStackWalker || s.Reason == record.ReasonMeasured
}

func noSource(uint64) string { return "" }

// sources returns what tells the source line of an address.
func (c *listCmd) sources(a *app, im *image, path string) func(addr uint64) string {
	cwd, _ := os.Getwd()
	tab := im.table
	_, _, err := tab.Line(0)
	if err == nil {
		return func(addr uint64) string {
			l, ok, err := tab.Line(addr)
			if err != nil || !ok {
				return ""
			}
			return sourceLine(l, cwd)
		}
	}
	code := record.ReadGoCode(im.File)
	if code == nil {
		a.notef("fentry: no source lines: %s: %v", path, err)
		return noSource
	}
	return func(addr uint64) string {
		l, ok := code.Line(addr)
		if !ok {
			return ""
		}
		return sourceLine(l, cwd)
	}
}

// inlined returns what tells the calls that the compiler has made part of a Go function; of others nobody asks.
func (c *listCmd) inlined(im *image) func(addr uint64) []record.Inlined {
	if !c.long {
		return func(uint64) []record.Inlined { return nil }
	}
	return record.ReadGoCode(im.File).Inlined
}

// summary counts the functions, and the reasons of those that cannot be traced, most frequent first. Parts of functions
// are counted apart.
func summary(sites []record.Site) string {
	n := map[record.Reason]uint64{}
	for i := range sites {
		n[sites[i].Reason]++
	}
	traceable := n[""]
	delete(n, "")
	parts := uint64(0)
	for r := range n {
		if r.Part() {
			parts += n[r]
		}
	}
	var b strings.Builder
	functions := plural(uint64(len(sites))-parts, "function", "functions")
	fmt.Fprintf(&b, "%s of %s can be traced", grouped(traceable), functions)
	if parts > 0 {
		fmt.Fprintf(&b, " (%s not counted)", plural(parts, "part of one", "parts of functions"))
	}
	for i, r := range record.ByNumber(n) {
		sep := ", "
		if i == 0 {
			sep = "; not: "
		}
		fmt.Fprintf(&b, "%s%s %s", sep, grouped(n[r]), r)
	}
	return b.String()
}

func (c *listCmd) writeLong(
	out *output, sites []record.Site, source func(uint64) string, inlined func(uint64) []record.Inlined,
) error {
	var t table
	t.column("KIND", false)
	t.column("ADDRESS", true)
	t.column("SIZE", true)
	t.column("FUNCTION", false)
	t.column("REASON", false)
	aliases := slices.ContainsFunc(sites, func(s record.Site) bool { return len(s.Aliases) > 0 })
	if aliases {
		t.column("ALIASES", false)
	}
	if c.srcline {
		t.column("SOURCE", false)
	}
	for i := range sites {
		s := &sites[i]
		kind := s.Kind.String()
		if s.Kind == record.KindNone {
			kind = "-"
		}
		size := "-"
		if s.Size > 0 {
			size = grouped(s.Size)
		}
		cells := []string{kind, fmt.Sprintf("%#x", s.Func), size, c.demangle.name(s.Display()), string(s.Reason)}
		if aliases {
			cells = append(cells, c.aliases(s))
		}
		if c.srcline {
			cells = append(cells, source(s.Func))
		}
		t.row(cells...)
		for _, call := range inlined(s.Func) {
			t.row(c.inlinedRow(&call, aliases)...)
		}
	}
	return t.write(out, out.paint)
}

// inlinedRow is the row of a call that is part of the function above.
func (c *listCmd) inlinedRow(call *record.Inlined, aliases bool) []string {
	cells := []string{"inlined", "", "", strings.Repeat("  ", call.Depth+1) + call.Name, ""}
	if aliases {
		cells = append(cells, "")
	}
	if c.srcline {
		at := ""
		if call.Call.File != "" {
			cwd, _ := os.Getwd()
			at = sourceLine(call.Call, cwd)
		}
		cells = append(cells, at)
	}
	return cells
}

// aliases are a function's other names as they are shown: those that look like another one, as two constructors do, once.
func (c *listCmd) aliases(s *record.Site) string {
	shown := c.demangle.name(s.Display())
	var names []string
	for _, a := range s.Aliases {
		if n := c.demangle.name(a); n != shown && !slices.Contains(names, n) && len(names) < mostAliases {
			names = append(names, n)
		}
	}
	if more := len(s.Aliases) - mostAliases; len(names) == mostAliases && more > 0 {
		names = append(names, fmt.Sprintf("(%d more)", more))
	}
	return strings.Join(names, ", ")
}

// mostAliases are shown in a line; --json has all.
const mostAliases = 16

// listedFunction is a line of list --json.
type listedFunction struct {
	Name      string   `json:"name"`
	Demangled string   `json:"demangled,omitempty"`
	Aliases   []string `json:"aliases,omitempty"`
	Address   string   `json:"address"`
	Size      uint64   `json:"size"`
	Traceable bool     `json:"traceable"`
	Kind      string   `json:"kind"`
	Site      string   `json:"site,omitempty"`
	SiteSize  int      `json:"site_size,omitempty"`
	Return    string   `json:"return,omitempty"`
	Table     string   `json:"table,omitempty"`
	Reason    string   `json:"reason,omitempty"`
	Source    string   `json:"source,omitempty"`

	Inlined []listedInlined `json:"inlined,omitempty"`
}

// listedInlined is a call that the compiler has made part of a Go function.
type listedInlined struct {
	Name  string `json:"name"`
	Depth int    `json:"depth"` // 0: called by the function itself, else by the one before with one less
	Call  string `json:"call,omitempty"`
}

func (c *listCmd) writeJSON(
	w *bufio.Writer, sites []record.Site, source func(uint64) string, inlined func(uint64) []record.Inlined,
) error {
	enc := jsonLines(w)
	for i := range sites {
		s := &sites[i]
		if !s.Traceable() && !c.long {
			continue
		}
		l := listedFunction{
			Name:      s.Display(),
			Aliases:   s.Aliases,
			Address:   fmt.Sprintf("%#x", s.Func),
			Size:      s.Size,
			Traceable: s.Traceable(),
			Kind:      s.Kind.String(),
			Table:     s.Source,
			Reason:    string(s.Reason),
			Source:    source(s.Func),
		}
		if d := c.demangle.name(s.Name); d != s.Name {
			l.Demangled = d
		}
		for _, call := range inlined(s.Func) {
			in := listedInlined{Name: call.Name, Depth: call.Depth}
			if call.Call.File != "" {
				in.Call = call.Call.String()
			}
			l.Inlined = append(l.Inlined, in)
		}
		if s.Len > 0 {
			l.Site, l.SiteSize, l.Return = fmt.Sprintf("%#x", s.Addr), s.Len, s.Ret.String()
		}
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// findProgram resolves a program the way a shell does, except that a file of
// that name in the working directory comes first.
func findProgram(name string) (string, error) {
	if _, err := os.Stat(name); err == nil || strings.Contains(name, "/") {
		return name, nil // reading it tells what is wrong with it
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s: %w, here or in PATH", name, fs.ErrNotExist)
	}
	return path, nil
}
