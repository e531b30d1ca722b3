package record

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/testtool"
)

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	c := exec.Command(name, args...)
	c.Stdout, c.Stderr = &out, &errs
	c.Env = append(os.Environ(), "LC_ALL=C")
	if err := c.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, errs.String())
	}
	return out.String()
}

// asm assembles and links text to an image of its own, without start files.
func asm(t *testing.T, text string, args ...string) string {
	t.Helper()
	return onAMD64.asm(t, text, args...)
}

func (m *target) asm(t *testing.T, text string, args ...string) string {
	t.Helper()
	testtool.Need(t, m.cc("gcc")[0])
	dir := t.TempDir()
	src, out := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.out")
	if err := os.WriteFile(src, []byte(text+"\n.section .note.GNU-stack,\"\",%progbits\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	m.compile(t, "gcc", append([]string{"-nostdlib", "-o", out, src}, args...)...)
	return out
}

func open(t testing.TB, path string) *elfio.File {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return f
}

func find(t testing.TB, path string) []Site {
	t.Helper()
	return findWith(t, path, Options{Plain: PlainNone})
}

func findWith(t testing.TB, path string, o Options) []Site {
	t.Helper()
	sites, err := Find(open(t, path), o)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return sites
}

func byName(sites []Site) map[string]Site {
	m := make(map[string]Site)
	for _, s := range sites {
		if old, ok := m[s.Name]; !ok || !old.Traceable() {
			m[s.Name] = s
		}
	}
	return m
}
