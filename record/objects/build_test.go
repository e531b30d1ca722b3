package objects_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/record/objects"
)

// assemble runs a compiler on a source and returns the object.
func assemble(t testing.TB, cc, source string, flags ...string) []byte {
	t.Helper()
	testtool.Need(t, cc)
	dir := t.TempDir()
	ext := ".c"
	if strings.HasPrefix(source, "\t") || strings.Contains(source, "\n\t.text") {
		ext = ".s"
	}
	if strings.Contains(cc, "++") {
		ext = ".cc"
	}
	src, obj := filepath.Join(dir, "x"+ext), filepath.Join(dir, "x.o")
	write(t, src, []byte(source))
	command(t, append(append([]string{cc}, flags...), "-c", src, "-o", obj)...)
	return read(t, obj)
}

func command(t testing.TB, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// record adds the table and checks what every object must obey: a second run changes nothing, the table fits the
// code, and Strip gives back the original.
func record(t testing.TB, b []byte, o objects.Options) []byte {
	t.Helper()
	ob, err := objects.Parse(b, o)
	if err != nil {
		t.Fatal(err)
	}
	res, err := ob.Output()
	if err != nil {
		t.Fatal(err)
	}
	if res.Output == nil {
		return b
	}
	out := res.Output.Bytes()
	again, err := objects.Parse(out, o)
	if err != nil {
		t.Fatalf("the object with its table: %v", err)
	}
	if bad := slices.Collect(again.Check()); len(bad) > 0 {
		t.Errorf("check: %q", bad)
	}
	if res, err := again.Output(); err != nil || res.Output != nil {
		t.Errorf("a second run changes the object again (%v)", err)
	}
	orig, err := objects.Strip(out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(orig, b) {
		t.Error("Strip does not give back the original")
	}
	if _, err := objects.Strip(b); !errors.Is(err, objects.ErrNoTable) {
		t.Errorf("Strip of the original: %v, want ErrNoTable", err)
	}
	return out
}

// sites returns all sites of an object.
func sites(t testing.TB, b []byte, o objects.Options) []objects.Site {
	t.Helper()
	ob, err := objects.Parse(b, o)
	if err != nil {
		t.Fatal(err)
	}
	var out []objects.Site
	for s := range ob.Sites() {
		out = append(out, s)
	}
	return out
}
