// Command summary reads the output of go test -json and prints what a person wants to know: a line a package, the
// output of what failed, the names of what was skipped, the slowest tests of those that take ten seconds or more, the
// names of what failed, and as the last line
//
//	N passed, N failed, N skipped
//
// counting tests and subtests that have no subtests of their own. It ends with 1 if anything failed. With -allow
// FILE, a skipped test no line of the file allows fails as well: each line is a regular expression for
// "package.Test/subtest", a tab, and the reason why it cannot run everywhere.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// A test is what is known of one test or subtest.
type test struct {
	output  strings.Builder
	verdict string
	elapsed float64 // seconds, without the time that it waited for others
	parent  bool
}

type summary struct {
	tests   map[string]*test // "package.Test/subtest"
	order   []string
	broken  []string // packages that failed without a failing test: they do not build, or crashed
	pkgOut  map[string]*strings.Builder
	failing map[string]bool
}

func main() {
	allow := flag.String("allow", "", "`file` of tests that may be skipped; all others may not")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, *allow); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer, allowFile string) error {
	allowed, err := readAllowed(allowFile)
	if err != nil {
		return err
	}
	s := &summary{tests: map[string]*test{}, pkgOut: map[string]*strings.Builder{}, failing: map[string]bool{}}
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var e event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil || e.Action == "" {
			fmt.Fprintln(out, sc.Text()) // not an event: go's own message
			continue
		}
		s.event(out, e)
	}
	if sc.Err() != nil {
		return sc.Err()
	}
	return s.finish(out, allowed, allowFile != "")
}

func (s *summary) event(out io.Writer, e event) {
	if e.Package == "" {
		e.Package, _, _ = strings.Cut(e.ImportPath, " ")
	}
	if e.Test == "" {
		b := s.pkgOut[e.Package]
		if b == nil {
			b = &strings.Builder{}
			s.pkgOut[e.Package] = b
		}
		switch e.Action {
		case "output", "build-output":
			b.WriteString(e.Output)
		case "pass":
			fmt.Fprintf(out, "ok    %s  %.1fs\n", e.Package, e.Elapsed)
		case "fail", "build-fail":
			if !s.failing[e.Package] {
				s.broken = append(s.broken, e.Package)
				fmt.Fprint(out, b)
			}
			s.failing[e.Package] = true
			fmt.Fprintf(out, "FAIL  %s  %.1fs\n", e.Package, e.Elapsed)
		}
		return
	}
	name := e.Package + "." + e.Test
	t := s.tests[name]
	if t == nil {
		t = &test{}
		s.tests[name] = t
		s.order = append(s.order, name)
		for p := e.Test; strings.Contains(p, "/"); {
			p = p[:strings.LastIndexByte(p, '/')]
			if up := s.tests[e.Package+"."+p]; up != nil {
				up.parent = true
			}
		}
	}
	t.elapsed = e.Elapsed
	switch e.Action {
	case "output":
		t.output.WriteString(e.Output)
	case "fail":
		s.failing[e.Package] = true
		fmt.Fprintf(out, "--- FAIL: %s (%.1fs)\n%s", name, e.Elapsed, t.output.String())
		t.verdict = e.Action
		t.output.Reset()
	case "pass":
		t.verdict = e.Action
		t.output.Reset()
	case "skip":
		t.verdict = e.Action
	}
}

func (s *summary) finish(out io.Writer, allowed []*regexp.Regexp, strict bool) error {
	passed, skipped := 0, 0
	failed := slices.Clone(s.broken)
	var refused, skips []string
	for _, name := range s.order {
		t := s.tests[name]
		if t.parent && t.verdict != "" {
			if t.verdict == "fail" && !s.childFailed(name) {
				failed = append(failed, name)
			}
			continue
		}
		switch t.verdict {
		case "pass":
			passed++
		case "skip":
			skipped++
			reason := strings.TrimSpace(lastLine(t.output.String()))
			if strict && !slices.ContainsFunc(allowed, func(r *regexp.Regexp) bool { return r.MatchString(name) }) {
				refused = append(refused, fmt.Sprintf("%s: %s", name, reason))
			} else {
				skips = append(skips, fmt.Sprintf("%s: %s", name, reason))
			}
		case "fail":
			failed = append(failed, name)
		default: // began and never ended: its process died
			failed = append(failed, name)
			fmt.Fprintf(out, "--- NO END: %s\n%s", name, t.output.String())
		}
	}
	if passed+len(failed)+skipped == 0 {
		return fmt.Errorf("no test ran")
	}
	lines(out, "skip  ", skips)
	for _, name := range s.slowest() {
		fmt.Fprintf(out, "slow  %s  %.1fs\n", name, s.tests[name].elapsed)
	}
	lines(out, "SKIP, but it has to run here: ", refused)
	lines(out, "FAILED  ", failed)
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, len(failed), skipped)
	switch {
	case len(failed) > 0:
		return fmt.Errorf("tests failed")
	case len(refused) > 0:
		return fmt.Errorf("%d tests were skipped that have to run here", len(refused))
	}
	return nil
}

// lines prints words, one a line.
func lines(out io.Writer, head string, words []string) {
	for _, w := range words {
		fmt.Fprintf(out, "%s%s\n", head, w)
	}
}

// slowest are up to ten tests that take ten seconds or more, the slowest first.
func (s *summary) slowest() []string {
	names := slices.DeleteFunc(slices.Clone(s.order), func(name string) bool {
		return s.tests[name].parent || s.tests[name].elapsed < 10
	})
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(s.tests[b].elapsed, s.tests[a].elapsed) })
	return names[:min(len(names), 10)]
}

// childFailed says whether a failing subtest is already counted for a test.
func (s *summary) childFailed(name string) bool {
	for _, n := range s.order {
		if strings.HasPrefix(n, name+"/") && s.tests[n].verdict != "pass" && s.tests[n].verdict != "skip" {
			return true
		}
	}
	return false
}

// lastLine is the last line that is no verdict: the reason a test gave for skipping.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if l := strings.TrimSpace(lines[i]); l != "" && !strings.HasPrefix(l, "--- ") && !strings.HasPrefix(l, "=== ") {
			return l
		}
	}
	return ""
}

func readAllowed(path string) ([]*regexp.Regexp, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []*regexp.Regexp
	for i, line := range strings.Split(string(b), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, reason, ok := strings.Cut(line, "\t")
		if !ok || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%s:%d: want a pattern, a tab and a reason", path, i+1)
		}
		re, err := regexp.Compile("^(?:" + pattern + ")$")
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		out = append(out, re)
	}
	return out, nil
}
