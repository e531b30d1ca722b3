package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/e2e/corpus"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// buildProgram gets a real program, built with -O2 -g and a kind of sites, from the cache.
func buildProgram(t testing.TB, name corpus.Name, k kind) corpus.Built {
	t.Helper()
	needFentry(t)
	testtool.Need(t, k.needs...)
	cc := k.target.compiler(t, k.compiler)
	f := corpus.Flags{CC: strings.Join(cc, " "), C: append([]string{"-O2", "-g"}, k.cflags...), LD: append([]string{}, k.ldflags...)}
	if k.name == "nop" {
		f.C, f.LD = append(f.C, "-fno-pie"), append(f.LD, "-no-pie")
	}
	b, err := corpus.Build(context.Background(), name, f)
	var missing *corpus.Missing
	if errors.As(err, &missing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func kindNamed(t testing.TB, name string) kind {
	t.Helper()
	for _, k := range slices.Concat(kinds, arm64Kinds) {
		if k.name == name {
			return k
		}
	}
	t.Fatalf("no kind %s", name)
	return kind{}
}

// A job is one run of a real program.
type job struct {
	kind    kind // it was built with
	program string
	args    []string
	stdin   string
	dir     string // working directory, default a fresh one
	timeout time.Duration
}

// runJob runs a job untraced or traced; the trace is in data.
func runJob(t testing.TB, j job, w way, data string, options ...string) *result {
	t.Helper()
	r, _ := runJobFile(t, j, w, data, options...)
	return r
}

// runJobFile also gives the programs that were patched on disk.
func runJobFile(t testing.TB, j job, w way, data string, options ...string) (*result, []string) {
	t.Helper()
	var files []string
	c := command{dir: j.dir, stdin: j.stdin, timeout: j.timeout}
	if c.dir == "" {
		c.dir = t.TempDir()
	}
	switch w {
	case "":
		c.argv = j.kind.command(append([]string{j.program}, j.args...)...)
	case byRecord, byCopy:
		c.argv = []string{fentry, "record", "-o", data}
		if w == byCopy {
			c.argv = append(c.argv, "--no-ptrace")
		}
		c.argv = append(append(append(append(c.argv, j.kind.recordOptions()...), options...), j.program), j.args...)
	case byPatching:
		patched := filepath.Join(t.TempDir(), filepath.Base(j.program))
		patchFile(t, j.program, patched, options)
		c.argv, c.env, c.argv0 = []string{patched}, []string{"FENTRY_DATA=" + data}, j.program
		if e := j.kind.emulation(); len(e) > 0 {
			c.argv, c.argv0 = append(slices.Clone(e), "-0", j.program, patched), ""
		}
		c.argv = append(c.argv, j.args...)
		files = append(files, patched)
	}
	return run(t, c), files
}

// sameTraced runs a job untraced and traced, and checks behaviour and trace.
func sameTraced(t *testing.T, j job, w way) *decoded {
	t.Helper()
	want := runJob(t, j, "", "")
	data := filepath.Join(t.TempDir(), "data")
	got, files := runJobFile(t, j, w, data)
	sameBehaviour(t, want, got)
	tr := decodeTrace(t, data, files...)
	if tr.lost != 0 {
		t.Errorf("%d events lost", tr.lost)
	}
	if tr.events == 0 {
		t.Error("no events")
	}
	// A traced child or a killed process may lack exits; a program that ends by itself has none for its innermost calls only.
	if err := os.RemoveAll(data); err != nil {
		t.Error(err)
	}
	return tr
}

func TestLua(t *testing.T) { testLua(t, kinds) }

func testLua(t *testing.T, kinds []kind) {
	scripts, err := filepath.Glob("testdata/lua/*.lua")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("testdata/lua: %v, %d scripts", err, len(scripts))
	}
	for n, k := range kinds {
		if k.compiler == "musl-gcc" {
			continue // which needs flags of its own for Lua's libraries
		}
		if k.plain && k.name != "plain" && !testtool.Wide() {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			k.target.need(t)
			b := buildProgram(t, corpus.Lua, k)
			for i, script := range scripts {
				name := strings.TrimSuffix(filepath.Base(script), ".lua")
				for _, w := range []way{byRecord, byPatching} {
					if !testtool.Wide() && k.name != "fentry" && (i%2 == 0) != (w == byRecord) {
						continue // each script one way with every kind, both ways with the most common one
					}
					if emulated := len(k.emulation()) > 0; emulated && !testtool.Wide() && i%len(kinds) != n {
						continue // each with one of the kinds
					}
					t.Run(name+"/"+string(w), func(t *testing.T) {
						tr := sameTraced(t, job{kind: k, program: b.Program, args: []string{mustAbs(t, script)}}, w)
						if tr.events < 100_000 {
							t.Errorf("only %d events", tr.events)
						}
					})
				}
			}
			t.Run("status", func(t *testing.T) {
				sameTraced(t, job{kind: k, program: b.Program, args: []string{"-e", "error('uncaught')"}}, byRecord)
				sameTraced(t, job{kind: k, program: b.Program, args: []string{"-e", "os.exit(17)"}}, byRecord)
				sameTraced(t, job{kind: k, program: b.Program, args: []string{"-"}, stdin: "print(io.read('a')) x = = 1"}, byPatching)
			})
		})
	}
}

func TestSQLite(t *testing.T) {
	testtool.Long(t)
	testSQLite(t, "fentry", byRecord, 100_000)
	testSQLite(t, "patchable", byPatching, 100_000)
	testSQLite(t, "mcount", byRecord, 100_000)
	if testtool.Wide() {
		testSQLite(t, "xray", byRecord, 100_000)
	}
}

func testSQLite(t *testing.T, name string, w way, statements int) {
	t.Run(name+"/"+string(w), func(t *testing.T) {
		t.Parallel()
		k := kindNamed(t, name)
		k.target.need(t)
		b := buildProgram(t, corpus.SQLite, k)
		script := corpus.SQLScript(statements)
		if n := strings.Count(script, ";\n"); n < statements {
			t.Fatalf("the script has %d statements", n)
		}
		tr := sameTraced(t, job{kind: k, program: b.Program, args: []string{"shop.db"}, stdin: script}, w)
		t.Logf("%d events, %.2f bytes each", tr.events, float64(tr.bytes)/float64(tr.events))
		if tr.events < 10*int64(statements) {
			t.Errorf("only %d events", tr.events)
		}
	})
}

// sampleData compresses neither too well nor too badly: text that repeats with changes, then noise.
func sampleData(n int) []byte {
	r := rand.New(rand.NewPCG(3, 4))
	var b bytes.Buffer
	for b.Len() < n*3/4 {
		fmt.Fprintf(&b, "%d the %x quick brown fox jumps over %d lazy dogs\n", b.Len(), r.IntN(1<<12), r.IntN(100))
	}
	for b.Len() < n {
		b.WriteByte(byte(r.IntN(256)))
	}
	return b.Bytes()[:n]
}

func TestZstd(t *testing.T) {
	testtool.Long(t)
	testZstd(t, "patchable", "mcount", "clang")
}

func testZstd(t *testing.T, kinds ...string) {
	for i, name := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kd := kindNamed(t, name)
			kd.target.need(t)
			b := buildProgram(t, corpus.Zstd, kd)
			w := []way{byRecord, byPatching}[i%2]
			emulated := len(kd.emulation()) > 0 && !testtool.Wide()
			size := 300_000
			if emulated {
				size = 100_000
			}
			data := sampleData(size)
			roundTrip := func(t *testing.T, options ...string) {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, "in"), data, 0o644); err != nil {
					t.Fatal(err)
				}
				var sums [2][32]byte
				for k, way := range []way{"", w} {
					trace := filepath.Join(t.TempDir(), "data")
					r, files := runJobFile(t, job{kind: kd, program: b.Program, args: append(append([]string{"-q", "-f"}, options...), "in", "-o", "out.zst"), dir: dir}, way, trace)
					r.stderr = withoutSummary(r.stderr)
					r.mustSucceed(t)
					packed, err := os.ReadFile(filepath.Join(dir, "out.zst"))
					if err != nil {
						t.Fatal(err)
					}
					sums[k] = sha256.Sum256(packed)
					unpack := []string{"-q", "-d", "-f", "--memory=512MB", "out.zst", "-o", "back"}
					trace2 := filepath.Join(t.TempDir(), "data")
					r, files2 := runJobFile(t, job{kind: kd, program: b.Program, args: unpack, dir: dir}, way, trace2)
					r.mustSucceed(t)
					back, err := os.ReadFile(filepath.Join(dir, "back"))
					if err != nil || !bytes.Equal(back, data) {
						t.Fatalf("%v: back comes something else: %d bytes, %v", options, len(back), err)
					}
					if way != "" {
						for _, d := range []string{trace, trace2} {
							if tr := decodeTrace(t, d, append(files, files2...)...); tr.lost != 0 || tr.events < 300 {
								t.Errorf("%v: %d events, %d lost", options, tr.events, tr.lost)
							}
							_ = os.RemoveAll(d)
						}
					}
				}
				if sums[0] != sums[1] {
					t.Errorf("%v: traced and untraced compress differently", options)
				}
			}
			levels := []string{"-1", "-3", "-6", "-9", "-12", "-15", "-19", "--fast=5"}
			if emulated {
				levels = []string{"-1", "-6", "-19"}
			} else if testtool.Wide() {
				levels = nil
				for l := 1; l <= 19; l++ {
					levels = append(levels, fmt.Sprintf("-%d", l))
				}
			}
			for _, l := range levels {
				t.Run(l, func(t *testing.T) { roundTrip(t, l) })
			}
			t.Run("ultra", func(t *testing.T) { roundTrip(t, "--ultra", "-22") })
			t.Run("threads", func(t *testing.T) { roundTrip(t, "-T4", "-B64K", "-5") })
			t.Run("long", func(t *testing.T) { roundTrip(t, "--long=24", "--check") })
			t.Run("test", func(t *testing.T) {
				sameTraced(t, job{kind: kd, program: b.Program, args: []string{"-b3", "-i0", "-q", "--does-not-exist"}}, w)
				sameTraced(t, job{kind: kd, program: b.Program, args: []string{"-t"}, stdin: "this is not compressed"}, w)
			})
			if testtool.Wide() {
				t.Run("playTests", func(t *testing.T) { playTests(t, kd, b) })
			}
		})
	}
}

// playTests runs zstd's own command line tests with a zstd that traces itself.
func playTests(t *testing.T, kd kind, b corpus.Built) {
	testtool.Need(t, "bash")
	dir := t.TempDir()
	copyDir(t, filepath.Join(b.Dir, "tests"), filepath.Join(dir, "tests"))
	copyDir(t, filepath.Join(b.Dir, "programs"), filepath.Join(dir, "programs"))
	patched := filepath.Join(dir, "zstd.traced")
	patchFile(t, b.Program, patched, []string{"-T", "profile"})
	datagen := filepath.Join(dir, "tests", "datagen") // always the host's
	for _, program := range []string{b.Program, patched} {
		path := os.Getenv("PATH")
		callable := program
		if len(kd.emulation()) > 0 {
			// The tests make links to what they call, whose names are the program's first argument, and have readelf look at it.
			bin := t.TempDir()
			path = bin + ":" + path
			callable = filepath.Join(bin, "zstd")
			for name, text := range map[string]string{
				"zstd":    "exec " + strings.Join(kd.emulation(), " ") + ` -0 "$0" ` + program + ` "$@"`,
				"readelf": `PATH=${PATH#*:}; exec readelf "$1" ` + program,
			} {
				if err := runfile.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n")); err != nil {
					t.Fatal(err)
				}
			}
		}
		r := run(t, command{dir: filepath.Join(dir, "tests"), argv: []string{"bash", "./playTests.sh"}, timeout: 20 * time.Minute,
			env: []string{"PATH=" + path, "ZSTD_BIN=" + callable, "DATAGEN_BIN=" + datagen, "FENTRY_DATA=" + filepath.Join(dir, "data")}})
		r.mustSucceed(t)
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err != nil {
		t.Errorf("no trace of the traced run: %v", err)
	}
}
