package buildstep

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/fentry-dev/fentry/internal/atomicfile"
)

// Rule is a line of a dependency file: what was written, and what was read for it.
type Rule struct {
	Target  string
	Prereqs []string
}

// WriteDepfile writes rules for make, and an empty one for each prerequisite, so that deleting one is no error.
func WriteDepfile(path string, rules []Rule) error {
	for _, r := range rules {
		for _, n := range append([]string{r.Target}, r.Prereqs...) {
			if strings.Contains(n, "\n") || strings.HasSuffix(n, `\`) {
				return fmt.Errorf("%s: the name %q cannot be written", path, n)
			}
		}
	}
	return atomicfile.Write(path, atomicfile.Options{NoSync: true}, func(f *os.File) error {
		w := bufio.NewWriter(f)
		var pre []string
		seen := map[string]bool{}
		for _, r := range rules {
			w.WriteString(makeTarget(r.Target) + ":")
			for _, p := range r.Prereqs {
				w.WriteString(" \\\n  " + makeWord(p))
				if !seen[p] {
					seen[p] = true
					pre = append(pre, p)
				}
			}
			w.WriteByte('\n')
		}
		for _, p := range pre {
			w.WriteString("\n" + makeTarget(p) + ":\n")
		}
		return w.Flush()
	})
}

// makeWord quotes a file name for make (GNU make manual, "Rule Syntax", "Wildcards"): with a backslash, before which
// those of the name are doubled. Of '=', ';' and '|' in names make has no notion; they are written as compilers do.
func makeWord(s string) string {
	var b strings.Builder
	slashes := 0
	for _, c := range []byte(s) {
		switch c {
		case '\\':
			slashes++
		case ' ', '\t', '#', ':':
			b.WriteString(strings.Repeat(`\`, slashes+1))
			slashes = 0
		case '$':
			b.WriteByte('$')
			slashes = 0
		default:
			slashes = 0
		}
		b.WriteByte(c)
	}
	return b.String()
}

// makeTarget is makeWord for a target, where % would make a pattern of it.
func makeTarget(s string) string {
	var b strings.Builder
	for i, part := range strings.Split(makeWord(s), "%") {
		if i > 0 {
			before := b.String()
			b.WriteString(strings.Repeat(`\`, len(before)-len(strings.TrimRight(before, `\`))) + `\%`)
		}
		b.WriteString(part)
	}
	return b.String()
}
