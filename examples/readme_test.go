package examples

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A shown command is one that the README shows, and what it says that the command prints.
type shown struct {
	command string
	lines   []string
}

// readme returns the commands of the README from the demo on, in their order. An indented line that begins with "$ " is
// a command; the indented lines behind it are what it prints.
func readme(t *testing.T) []shown {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, examples, found := strings.Cut(string(text), "The examples use the demo's program")
	if !found {
		t.Fatal("the README does not say from where on its examples use the demo")
	}
	var all []shown
	inside := false
	for l := range strings.Lines(examples) {
		l, indented := strings.CutPrefix(strings.TrimSuffix(l, "\n"), "    ")
		command, isCommand := strings.CutPrefix(l, "$ ")
		switch {
		case !indented:
			inside = false
		case isCommand:
			all, inside = append(all, shown{command: command}), true
		case inside:
			all[len(all)-1].lines = append(all[len(all)-1].lines, l)
		}
	}
	return all
}

// What differs between two runs or machines: durations and sizes, which thread came first, and what follows from them:
// which calls are left out, and so which are shown as leaves, and the lines of the tree.
var (
	figures   = regexp.MustCompile(`([!#+*@$] +)?[0-9.]+ (us|ms|ns|s|KiB|MiB)\b|^ *[0-9]+\)|\b[0-9]+\.[0-9]{2}\b|[│├└─]`)
	leaf      = regexp.MustCompile(`\(\);|\(\) \{`)
	limits    = regexp.MustCompile(` (-t 500ns|--min 0\.2|-n 5)\b`)
	belowOnly = regexp.MustCompile(`^\d+ lines below`)
)

// steady returns the lines of an output without what differs, spaces run together.
func steady(lines []string) []string {
	var kept []string
	for _, l := range lines {
		l = leaf.ReplaceAllString(figures.ReplaceAllString(l, ""), "()")
		if l = strings.Join(strings.Fields(l), " "); !belowOnly.MatchString(l) && l != "| }" {
			kept = append(kept, l)
		}
	}
	return kept
}

// TestREADME runs what the README shows, in its order, in the directory that it says, and compares what is printed.
// A command whose threshold makes its output a matter of speed is run without it, and has to print what is shown and
// may print more.
func TestREADME(t *testing.T) {
	need(t, "gcc", "cmp")
	dir := filepath.Join(t.TempDir(), "try")
	run(t, ".", "fentry", "demo", dir)
	source := "int f(int x) { return x + 1; }\nint main(int argc, char **argv) { (void)argv; return f(argc) != 2; }\n"
	if err := os.WriteFile(filepath.Join(dir, "prog.c"), []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, s := range readme(t) {
		// Standard error too: the summary of a run is shown.
		out := run(t, dir, "timeout", "-k", "1", "600", "sh", "-c", "{ "+limits.ReplaceAllString(s.command, "")+"; } 2>&1")
		if len(s.lines) == 0 {
			continue
		}
		printed := map[string]bool{}
		for _, l := range steady(strings.Split(out, "\n")) {
			printed[l] = true
		}
		for _, l := range steady(s.lines) {
			if compared++; !printed[l] {
				t.Errorf("%s: the README shows\n\t%s\nwhich is not in\n%s", s.command, l, out)
			}
		}
	}
	if compared < 60 {
		t.Errorf("only %d lines of output are shown", compared)
	}
}
