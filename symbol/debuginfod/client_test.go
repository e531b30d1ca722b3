package debuginfod

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/symbol"
)

// separated is a program without names, its debug file and their build-id.
type separated struct {
	program, debug string
	id             []byte
}

func separate(t *testing.T) separated {
	t.Helper()
	testtool.Need(t, "gcc", "objcopy", "strip")
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	src := "int apart(int x) { return 3 * x; }\nint main(int argc, char **argv) { return apart(argc) - 3; }\n"
	if err := os.WriteFile(at("prog.c"), []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"gcc", "-g", "-O1", "-fno-inline", "-Wl,--build-id", "-o", at("whole"), at("prog.c")},
		{"objcopy", "--only-keep-debug", at("whole"), at("debug")},
		{"strip", "-o", at("prog"), at("whole")},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	b, err := os.ReadFile(at("prog"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return separated{at("prog"), at("debug"), f.BuildID()}
}

// client is one by its environment, with a cache of its own.
func client(t *testing.T, urls string, env ...string) *Client {
	t.Helper()
	cache := filepath.Join(t.TempDir(), "cache", "debuginfod")
	env = append(env, "DEBUGINFOD_URLS="+urls, "DEBUGINFOD_CACHE_PATH="+cache)
	return FromEnv(func(name string) (string, bool) {
		for _, kv := range env {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				return v, true
			}
		}
		return "", false
	})
}

func serve(t *testing.T, h http.HandlerFunc) (url string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

// A program's functions have their names by the file that a server has, which is asked once.
func TestFind(t *testing.T) {
	p := separate(t)
	none, askedNone := serve(t, http.NotFound)
	want := "/root/buildid/" + hex.EncodeToString(p.id) + "/debuginfo"
	server, asked := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != want {
			t.Errorf("the server is asked for %s, want %s", r.URL.Path, want)
		}
		http.ServeFile(w, r, p.debug)
	})
	c := client(t, none+"  "+server+"/root/")
	var got, total int64
	c.Progress = func(_ string, g, n int64) { got, total = g, n }
	for range 2 {
		tab, err := symbol.Open(p.program, symbol.Options{Fetch: func(id []byte) (string, error) {
			return c.Find(t.Context(), id)
		}})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, fn := range tab.Funcs() {
			if fn.Name == "apart" {
				line, ok, err := tab.Line(fn.Addr)
				found = ok && err == nil && line.Line == 1
			}
		}
		if !found {
			t.Error("the function has no name, or no line")
		}
		if err := tab.Close(); err != nil {
			t.Error(err)
		}
	}
	if asked.Load() != 1 || askedNone.Load() != 1 {
		t.Errorf("the servers were asked %d and %d times", askedNone.Load(), asked.Load())
	}
	st, err := os.Stat(p.debug)
	if err != nil {
		t.Fatal(err)
	}
	if got != st.Size() || total != st.Size() {
		t.Errorf("progress: %d of %d bytes, want %d", got, total, st.Size())
	}
	// The cache is as other clients have it.
	files, err := filepath.Glob(filepath.Join(c.Cache, "*", "*"))
	if err != nil || len(files) != 1 || files[0] != filepath.Join(c.Cache, hex.EncodeToString(p.id), "debuginfo") {
		t.Errorf("in the cache: %v, %v", files, err)
	}
}

// What no server has is not asked for again and again.
func TestNotFound(t *testing.T) {
	none, asked := serve(t, http.NotFound)
	c := client(t, none)
	id := []byte{1, 2, 3, 4}
	for range 3 {
		if path, err := c.Find(t.Context(), id); !errors.Is(err, ErrNotFound) {
			t.Fatalf("%s, %v", path, err)
		}
	}
	if asked.Load() != 1 {
		t.Errorf("asked %d times", asked.Load())
	}
	old := time.Now().Add(-DefaultMiss - time.Minute)
	if err := os.Chtimes(filepath.Join(c.Cache, "01020304", "debuginfo"), old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Find(t.Context(), id); !errors.Is(err, ErrNotFound) || asked.Load() != 2 {
		t.Errorf("after a while: %v, asked %d times", err, asked.Load())
	}
	if err := os.WriteFile(filepath.Join(c.Cache, "cache_miss_s"), []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Find(t.Context(), id); !errors.Is(err, ErrNotFound) || asked.Load() != 3 {
		t.Errorf("with cache_miss_s 0: %v, asked %d times", err, asked.Load())
	}
}

// A server that sends something else, too much, or nothing, gives an error, and leaves nothing in the cache.
func TestHostileServer(t *testing.T) {
	p := separate(t)
	for _, tt := range []struct {
		name  string
		env   string
		serve http.HandlerFunc
		want  string
	}{
		{"text", "", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, "what was sent"},
		{"nothing", "", func(http.ResponseWriter, *http.Request) {}, "nothing was sent"},
		{"another file", "", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, "/proc/self/exe") }, "build-id"},
		{"error", "", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) }, "status 503"},
		{"announced too much", "DEBUGINFOD_MAXSIZE=100", func(w http.ResponseWriter, r *http.Request) {
			http.ServeFile(w, r, p.debug)
		}, "more than 100"},
		{"endless", "DEBUGINFOD_MAXSIZE=500000", func(w http.ResponseWriter, _ *http.Request) {
			for b := make([]byte, 1<<16); ; {
				if _, err := w.Write(b); err != nil {
					return
				}
			}
		}, "more than 500000"},
		{"silent", "DEBUGINFOD_TIMEOUT=1", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "less than 100 KiB"},
		{"cut", "", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "\x7fELF")
		}, "unexpected EOF"},
		{"slow", "DEBUGINFOD_MAXTIME=1", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				w.Write(make([]byte, 1<<10))
				time.Sleep(time.Millisecond)
			}
		}, "not done after 1s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			at, _ := serve(t, tt.serve)
			c := client(t, at, tt.env)
			path, err := c.Find(t.Context(), p.id)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), at) {
				t.Errorf("%s, %v; want an error with %q", path, err, tt.want)
			}
			if left, _ := filepath.Glob(filepath.Join(c.Cache, "*", "*")); len(left) != 0 {
				t.Errorf("left in the cache: %v", left)
			}
		})
	}
}

// Nobody is asked unless the user says whom.
func TestFromEnv(t *testing.T) {
	if c := client(t, " "); c != nil {
		t.Errorf("a client for %v", c.URLs)
	}
	home := t.TempDir()
	env := map[string]string{"DEBUGINFOD_URLS": "http://a/ http://b/", "HOME": home, "DEBUGINFOD_TIMEOUT": "x"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	c := FromEnv(lookup)
	if len(c.URLs) != 2 || c.Stall != DefaultStall || c.MaxTime != 0 || c.Cache != filepath.Join(home, ".cache", "debuginfod_client") {
		t.Errorf("%+v", c)
	}
	env["XDG_CACHE_HOME"] = "/x"
	if c = FromEnv(lookup); c.Cache != "/x/debuginfod_client" {
		t.Errorf("with XDG_CACHE_HOME the cache is %s", c.Cache)
	}
	if err := os.Mkdir(filepath.Join(home, ".debuginfod_client_cache"), 0o700); err != nil {
		t.Fatal(err)
	}
	if c = FromEnv(lookup); c.Cache != filepath.Join(home, ".debuginfod_client_cache") {
		t.Errorf("with a cache of old the cache is %s", c.Cache)
	}
}

func TestCancelled(t *testing.T) {
	at, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := client(t, at).Find(ctx, []byte{1, 2, 3, 4}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
