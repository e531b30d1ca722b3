package buildstep

import (
	"bufio"
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
	return atomicfile.Write(path, atomicfile.Options{NoSync: true}, func(f *os.File) error {
		w := bufio.NewWriter(f)
		var pre []string
		seen := map[string]bool{}
		for _, r := range rules {
			w.WriteString(makeWord(r.Target) + ":")
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
			w.WriteString("\n" + makeWord(p) + ":\n")
		}
		return w.Flush()
	})
}

// makeWord quotes a file name for make.
var makeQuote = strings.NewReplacer(" ", `\ `, "#", `\#`, "$", "$$", ":", `\:`)

func makeWord(s string) string { return makeQuote.Replace(s) }
