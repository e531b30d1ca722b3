package fentry_test

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/machine"
)

// places are the paths that a section of CONTRIBUTING.md lists, as patterns: what it calls MACHINE is there for every
// instruction set, NAME for one exporter, SUBCOMMAND for one command.
func places(t *testing.T, section string) (out []string) {
	t.Helper()
	page, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("CONTRIBUTING.md has no section %q", section)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			p := strings.NewReplacer("NAME", "ndjson", "SUBCOMMAND", "report").Replace(m[1])
			if !strings.Contains(p, "MACHINE") {
				out = append(out, p)
				continue
			}
			for _, a := range machine.All {
				out = append(out, strings.ReplaceAll(p, "MACHINE", a.Go))
			}
		}
	}
	return out
}

// TestContributing holds CONTRIBUTING.md to the tree: the places that it lists are there.
func TestContributing(t *testing.T) {
	for _, section := range []string{"Adding an instruction set", "Adding a kind of site", "Adding an event", "Adding an exporter", "Adding a subcommand"} {
		list := places(t, section)
		if len(list) < 5 {
			t.Errorf("%s: only %d places", section, len(list))
		}
		for _, p := range list {
			if found, err := filepath.Glob(p); err != nil || len(found) == 0 {
				t.Errorf("%s: there is no %s (%v)", section, p, err)
			}
		}
	}
}

// TestMachinePlaces holds it to the sources: one that names an instruction set is among the places to look at for another.
func TestMachinePlaces(t *testing.T) {
	list := places(t, "Adding an instruction set")
	listed := func(name string) bool {
		for _, p := range list {
			if ok, _ := path.Match(p, name); ok || strings.HasPrefix(name, p+"/") {
				return true
			}
		}
		return false
	}
	files, err := exec.Command("git", "ls-files", "*.go").Output()
	if err != nil {
		t.Skipf("no checkout: %v", err)
	}
	named := 0
	for name := range strings.FieldsSeq(string(files)) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // deleted, and not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(b, []byte("elf.EM_AARCH64")) {
			continue
		}
		named++
		if !listed(name) {
			t.Errorf("%s knows a machine, and CONTRIBUTING.md does not list it", name)
		}
	}
	if named < 10 {
		t.Errorf("only %d sources name a machine", named)
	}
}
