package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// The functions of a stripped program have the names that a debuginfod server knows, in every command that takes names.
func TestDebuginfod(t *testing.T) {
	testtool.Need(t, "gcc", "objcopy", "strip", debuginfodFind)
	for _, name := range []string{"DEBUGINFOD_TIMEOUT", "DEBUGINFOD_MAXTIME", "DEBUGINFOD_MAXSIZE"} {
		t.Setenv(name, "")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	src := `__attribute__((noinline)) static int apart(int x) { __asm__ volatile(""); return 3 * x; }
int main(int argc, char **argv) { return apart(argc) - 3; }
`
	if err := os.WriteFile(at("prog.c"), []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"gcc", "-g", "-O1", "-fpatchable-function-entry=5", "-Wl,--build-id", "-o", at("whole"), at("prog.c")},
		{"objcopy", "--only-keep-debug", at("whole"), at("debug")},
		{"strip", "-o", at("prog"), at("whole")},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, at("debug"))
	}))
	t.Cleanup(server.Close)
	none := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(none.Close)
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	t.Setenv("LC_ALL", "C")
	t.Setenv("no_proxy", "127.0.0.1") // the servers are here, whatever leads elsewhere
	t.Setenv("DEBUGINFOD_CACHE_PATH", at("cache"))
	fentry := func(servers string, args ...string) (stdout, stderr string) {
		t.Helper()
		t.Setenv("DEBUGINFOD_URLS", servers)
		var out, errs bytes.Buffer
		if status := run(args, &app{stdin: os.Stdin, stdout: &out, stderr: &errs, lookupEnv: os.LookupEnv}); status != 0 {
			t.Fatalf("fentry %s: status %d\n%s", strings.Join(args, " "), status, errs.String())
		}
		return out.String(), errs.String()
	}
	if out, _ := fentry("", "list", at("prog")); strings.Contains(out, "apart") {
		t.Fatalf("without a server the function has a name:\n%s", out)
	}
	t.Setenv("DEBUGINFOD_CACHE_PATH", at("empty"))
	out, errs := fentry(none.URL, "list", at("prog"))
	if strings.Contains(out, "apart") || strings.Contains(errs, "missing") {
		t.Errorf("with a server that knows nothing:\n%s%s", out, errs)
	}
	t.Setenv("DEBUGINFOD_CACHE_PATH", at("none"))
	out, errs = fentry(down.URL, "list", at("prog"))
	if strings.Contains(out, "apart") || !strings.Contains(errs, "names can be missing: debuginfod-find: ") {
		t.Errorf("with a server that is down:\n%s%s", out, errs)
	}
	t.Setenv("DEBUGINFOD_CACHE_PATH", at("cache"))
	for _, args := range [][]string{{"list", "-F", "apart", at("prog")}, {"patch", "-F", "apart", "--plan", at("prog")}} {
		if out, errs := fentry(server.URL, args...); !strings.Contains(out, "apart") || strings.Contains(errs, "missing") {
			t.Errorf("fentry %s:\n%s%s", strings.Join(args, " "), out, errs)
		}
	}
}

// A server that fails is asked once: programs wait for the answer.
func TestDebuginfodFails(t *testing.T) {
	testtool.Need(t, debuginfodFind)
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if strings.Contains(r.URL.Path, "00") {
			http.NotFound(w, r)
			return
		}
		<-r.Context().Done() // there is no answer
	}))
	t.Cleanup(server.Close)
	t.Setenv("LC_ALL", "C")
	t.Setenv("no_proxy", "127.0.0.1")
	t.Setenv("DEBUGINFOD_CACHE_PATH", t.TempDir())
	t.Setenv("DEBUGINFOD_TIMEOUT", "1")
	t.Setenv("DEBUGINFOD_URLS", server.URL)
	var errs bytes.Buffer
	a := &app{stdout: io.Discard, stderr: &errs, lookupEnv: os.LookupEnv}
	fetch := a.symbols().Fetch
	ask := func(id byte) int32 {
		before := asked.Load()
		if path, err := fetch(append(bytes.Repeat([]byte{id}, 19), byte(asked.Load()+1))); err == nil {
			t.Errorf("%#x: %q", id, path)
		}
		return asked.Load() - before
	}
	if a, b := ask(0), ask(0); a == 0 || b == 0 {
		t.Errorf("asked %d and %d times for what it does not have", a, b)
	}
	if n := ask(0x11); n == 0 {
		t.Error("not asked")
	}
	for id := range byte(3) {
		if n := ask(id * 0x11); n > 0 {
			t.Errorf("asked %d times since it failed", n)
		}
	}
	if n := strings.Count(errs.String(), "names can be missing"); n != 1 {
		t.Errorf("%d notes\n%s", n, errs.String())
	}
}
