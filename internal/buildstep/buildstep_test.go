package buildstep_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/buildstep"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/record/objects"
)

// TestMain lets a test start this program as one that adds tables until it is killed.
func TestMain(m *testing.M) {
	if files := os.Getenv("BUILDSTEP_FILES"); files != "" {
		o := buildstep.Options{}
		switch os.Getenv("BUILDSTEP_MODE") {
		case "strip":
			o.Strip = true
		case "sync":
			o.Sync = true
		case "time":
			o.KeepTime = true
		case "links":
			o.KeepLinks = true
		}
		if mode := os.Getenv("BUILDSTEP_MODE"); mode == "run" || mode == "slots" {
			var jobs []buildstep.Job
			for _, f := range strings.Split(files, ":") {
				jobs = append(jobs, buildstep.Job{Path: f})
			}
			status, workers := 0, 1
			if mode == "slots" { // busy for minutes, with several workers
				jobs, workers = slices.Repeat(jobs, 1_000_000), 4
			}
			buildstep.Run(jobs, workers, func(_ int, _ buildstep.Outcome, err error) {
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					status = 1
				}
			})
			os.Exit(status)
		}
		for _, f := range strings.Split(files, ":") {
			if _, err := buildstep.File(f, o); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var compiled = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "buildstep")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	src, obj := filepath.Join(dir, "x.c"), filepath.Join(dir, "x.o")
	if err := os.WriteFile(src, []byte("int f(int x) { return x + 1; }\n"), 0o644); err != nil {
		return nil, err
	}
	if out, err := exec.Command("gcc", "-O2", "-pg", "-mfentry", "-c", src, "-o", obj).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(obj)
})

func object(t *testing.T) []byte {
	t.Helper()
	testtool.Need(t, "gcc")
	b, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, path string, b []byte) string {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func get(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		out = append(out, e.Name())
	}
	return out
}

func want(t *testing.T, b []byte) []byte {
	t.Helper()
	ob, err := objects.Parse(b, objects.Options{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := ob.Output()
	if err != nil {
		t.Fatal(err)
	}
	return res.Output.Bytes()
}

func TestReplaceKeepsWhatBelongsToTheFile(t *testing.T) {
	orig := object(t)
	dir := t.TempDir()
	p := put(t, filepath.Join(dir, "x.o"), orig)
	if err := unix.Chmod(p, 0o750); err != nil {
		t.Fatal(err)
	}
	xattr := unix.Setxattr(p, "user.fentry", []byte("kept"), 0) == nil
	if err := os.Symlink("x.o", filepath.Join(dir, "sym.o")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(p, filepath.Join(dir, "hard.o")); err != nil {
		t.Fatal(err)
	}
	old := unix.Umask(0o077)
	out, err := buildstep.File(filepath.Join(dir, "sym.o"), buildstep.Options{})
	unix.Umask(old)
	if err != nil || !out.Changed || out.Recorded != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	if !bytes.Equal(get(t, p), want(t, orig)) || !bytes.Equal(get(t, filepath.Join(dir, "hard.o")), orig) {
		t.Error("the target of the link must change, its other name must not")
	}
	var st unix.Stat_t
	if err := unix.Stat(p, &st); err != nil || st.Mode&0o7777 != 0o750 {
		t.Errorf("mode %o, %v", st.Mode, err)
	}
	if xattr {
		b := make([]byte, 8)
		if n, err := unix.Getxattr(p, "user.fentry", b); err != nil || string(b[:n]) != "kept" {
			t.Errorf("attribute %q, %v", b[:max(n, 0)], err)
		}
	}
	before := st
	if out, err := buildstep.File(p, buildstep.Options{}); err != nil || out.Changed {
		t.Errorf("second run: %+v, %v", out, err)
	}
	if err := unix.Stat(p, &st); err != nil || st.Ino != before.Ino || st.Mtim != before.Mtim {
		t.Error("a second run touches the file")
	}
	if _, err := buildstep.File(filepath.Join(dir, "hard.o"), buildstep.Options{KeepLinks: true, KeepTime: true}); err != nil {
		t.Fatal(err)
	}
	if out, err := buildstep.File(p, buildstep.Options{Strip: true}); err != nil || !out.Changed || !bytes.Equal(get(t, p), orig) {
		t.Errorf("strip: %+v, %v", out, err)
	}
	if n := names(t, dir); len(n) != 3 {
		t.Errorf("litter: %q", n)
	}
}

func TestKeepLinksAndTime(t *testing.T) {
	orig := object(t)
	dir := t.TempDir()
	p := put(t, filepath.Join(dir, "x.o"), orig)
	hard := filepath.Join(dir, "hard.o")
	if err := os.Link(p, hard); err != nil {
		t.Fatal(err)
	}
	then := time.Unix(1e9, 0)
	if err := os.Chtimes(p, then, then); err != nil {
		t.Fatal(err)
	}
	if _, err := buildstep.File(p, buildstep.Options{KeepLinks: true}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(get(t, hard), want(t, orig)) {
		t.Error("the other name still has the old contents")
	}
	q := put(t, filepath.Join(dir, "y.o"), orig)
	if err := os.Chtimes(q, then, then); err != nil {
		t.Fatal(err)
	}
	if _, err := buildstep.File(q, buildstep.Options{KeepTime: true}); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(q); err != nil || !fi.ModTime().Equal(then) {
		t.Errorf("time %v, %v", fi.ModTime(), err)
	}
}

// Files that have been replaced are kept open for a while, but not at the cost of those that are still to be opened.
func TestFewDescriptors(t *testing.T) {
	orig := object(t)
	dir := t.TempDir()
	var files []string
	for i := range 40 {
		files = append(files, put(t, filepath.Join(dir, fmt.Sprintf("%d.o", i)), orig))
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "ulimit -n 12; exec "+exe)
	cmd.Env = append(os.Environ(), "BUILDSTEP_FILES="+strings.Join(files, ":"), "BUILDSTEP_MODE=run", "GOMAXPROCS=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, f := range files {
		if !bytes.Equal(get(t, f), want(t, orig)) {
			t.Errorf("%s has no table", f)
		}
	}
}

func TestManyRunsOnOneFile(t *testing.T) {
	orig := object(t)
	dir := t.TempDir()
	p := put(t, filepath.Join(dir, "x.o"), orig)
	var wg sync.WaitGroup
	var changed, failed int
	var mu sync.Mutex
	for range 16 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			out, err := buildstep.File(p, buildstep.Options{})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				failed++
			}
			if out.Changed {
				changed++
			}
		}()
	}
	wg.Wait()
	if changed != 1 || failed != 0 || !bytes.Equal(get(t, p), want(t, orig)) || len(names(t, dir)) != 1 {
		t.Errorf("%d of 16 runs changed the file, %d failed, directory %q", changed, failed, names(t, dir))
	}
}

func TestFailuresLeaveTheFile(t *testing.T) {
	orig := object(t)
	dir := t.TempDir()
	for name, b := range map[string][]byte{
		"cut.o": orig[:len(orig)/2], "empty.o": nil, "text.o": []byte("no object\n"), "header.o": orig[:64],
		"foreign.o": append(append([]byte{}, orig[:18]...), append([]byte{0xff, 0xff}, orig[20:]...)...), "cut.a": []byte("!<arch>\nshort"),
	} {
		p := put(t, filepath.Join(dir, name), b)
		_, err := buildstep.File(p, buildstep.Options{})
		if err == nil || !strings.HasPrefix(err.Error(), p+": ") {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(get(t, p), b) {
			t.Errorf("%s was changed", name)
		}
	}
	if _, err := buildstep.File(dir, buildstep.Options{}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory: %v", err)
	}
	// A full disk, as the kernel reports a file that grows beyond its limit.
	p := put(t, filepath.Join(dir, "full.o"), orig)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `trap '' XFSZ; ulimit -f 1; exec "$0"`, exe)
	cmd.Env = append(os.Environ(), "BUILDSTEP_FILES="+p)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !bytes.Contains(out, []byte("file too large")) {
		t.Errorf("limit of the file size: %v %q", err, out)
	}
	if !bytes.Equal(get(t, p), orig) || len(names(t, dir)) != 7 {
		t.Errorf("litter or damage: %q", names(t, dir))
	}
}

func TestKilled(t *testing.T) {
	orig := object(t)
	done := want(t, orig)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var files []string
	for i := range 200 {
		files = append(files, filepath.Join(dir, fmt.Sprintf("%d.o", i)))
	}
	for delay := time.Duration(0); delay < 20*time.Millisecond; delay += time.Millisecond {
		for _, f := range files {
			put(t, f, orig)
		}
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "BUILDSTEP_FILES="+strings.Join(files, ":"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(delay)
		cmd.Process.Kill()
		cmd.Wait()
		for _, f := range files {
			if b := get(t, f); !bytes.Equal(b, orig) && !bytes.Equal(b, done) {
				t.Fatalf("killed after %v: %s is neither the old nor the new object", delay, f)
			}
		}
		// Between its two system calls, link and rename, a kill leaves one file with a name; nothing else may be there.
		if n := names(t, dir); len(n) > len(files)+1 {
			t.Errorf("killed after %v: %d files", delay, len(n))
		}
		for _, n := range names(t, dir) {
			if strings.HasPrefix(n, ".") {
				os.Remove(filepath.Join(dir, n))
			}
		}
	}
}

func TestArchives(t *testing.T) {
	orig := object(t)
	for _, thin := range []string{"", "T"} {
		dir := t.TempDir()
		put(t, filepath.Join(dir, "a.o"), orig)
		put(t, filepath.Join(dir, "a-name-longer-than-fifteen-letters.o"), orig)
		put(t, filepath.Join(dir, "notes.txt"), []byte("odd"))
		cmd := exec.Command("ar", "rcs"+thin, "lib.a", "a.o", "notes.txt", "a-name-longer-than-fifteen-letters.o")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		lib := filepath.Join(dir, "lib.a")
		before := get(t, lib)
		out, err := buildstep.File(lib, buildstep.Options{})
		if err != nil || out.Recorded != 2 || !out.Changed {
			t.Fatalf("%q: %+v, %v", thin, out, err)
		}
		if thin != "" && len(out.Prereqs) != 2 {
			t.Errorf("members read: %q", out.Prereqs)
		}
		symbols, err := exec.Command("nm", "-s", lib).CombinedOutput()
		if err != nil || !bytes.Contains(symbols, []byte("a.o\n")) {
			t.Errorf("nm -s: %v %s", err, symbols)
		}
		src := put(t, filepath.Join(dir, "main.c"), []byte("int f(int); void __fentry__(void) {} int main(void) { return f(-1); }\n"))
		if out, err := exec.Command("gcc", src, lib, "-o", filepath.Join(dir, "prog")).CombinedOutput(); err != nil {
			t.Errorf("linking with the archive: %v: %s", err, out)
		}
		if out, err := buildstep.File(lib, buildstep.Options{}); err != nil || out.Changed {
			t.Errorf("second run: %+v, %v", out, err)
		}
		if _, err := buildstep.File(lib, buildstep.Options{Strip: true}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(get(t, lib), before) || !bytes.Equal(get(t, filepath.Join(dir, "a.o")), orig) {
			t.Errorf("%q: strip does not give back the archive", thin)
		}
	}
}

// Archives inside thin archives, as GNU ar and llvm-ar make them.
func TestArchivesInThinOnes(t *testing.T) {
	orig := object(t)
	for _, tool := range []string{"ar", "llvm-ar"} {
		testtool.Need(t, tool)
		dir := t.TempDir()
		for _, n := range []string{"a.o", "b.o", "c.o"} {
			put(t, filepath.Join(dir, n), orig)
		}
		for _, args := range []string{"rcs inner.a a.o b.o", "rcsT outer.a inner.a c.o"} {
			cmd := exec.Command(tool, strings.Fields(args)...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		outer, inner := filepath.Join(dir, "outer.a"), filepath.Join(dir, "inner.a")
		before := get(t, outer)
		var seen []string
		look := buildstep.Options{ReadOnly: true, Inspect: func(m string, _ *objects.Object, _ objects.Result) error {
			seen = append(seen, m)
			return nil
		}}
		if _, err := buildstep.File(outer, look); err != nil || !slices.Equal(seen, []string{"inner.a(a.o)", "inner.a(b.o)", "c.o"}) {
			t.Errorf("%s: inspected %q, %v", tool, seen, err)
		}
		out, err := buildstep.File(outer, buildstep.Options{})
		if err != nil || out.Recorded != 3 || !slices.Equal(out.Prereqs, []string{inner, filepath.Join(dir, "c.o")}) {
			t.Fatalf("%s: %+v, %v", tool, out, err)
		}
		if tool == "ar" {
			// Its members are found where the archive says they are.
			src := put(t, filepath.Join(dir, "main.c"), []byte("int f(int); void __fentry__(void) {} int main(void) { return f(-1); }\n"))
			if out, err := exec.Command("gcc", src, outer, "-o", filepath.Join(dir, "prog")).CombinedOutput(); err != nil {
				t.Errorf("linking with the archive: %v: %s", err, out)
			}
		}
		if out, err := buildstep.File(outer, buildstep.Options{}); err != nil || out.Changed {
			t.Errorf("%s: second run: %+v, %v", tool, out, err)
		}
		if _, err := buildstep.File(outer, buildstep.Options{Strip: true}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(get(t, outer), before) || !bytes.Equal(get(t, filepath.Join(dir, "c.o")), orig) {
			t.Errorf("%s: strip does not give back the archive", tool)
		}
		if _, err := buildstep.File(inner, buildstep.Options{}); err != nil {
			t.Fatal(err)
		}
		_, err = buildstep.File(outer, buildstep.Options{})
		if stale := err != nil && strings.Contains(err.Error(), "make this one again"); stale != (tool == "ar") {
			t.Errorf("%s: the inner archive has changed: %v", tool, err)
		}
	}
}

// A thin archive that is its own member ends, by whatever name; a pipe for a member is not waited for.
func TestThinArchiveTraps(t *testing.T) {
	dir := t.TempDir()
	lib := put(t, filepath.Join(dir, "l.a"), []byte("!<thin>\n"+fmt.Sprintf("%-48s%-10d`\n", "l.a/", 0)))
	if _, err := buildstep.File(lib, buildstep.Options{}); err != nil {
		t.Errorf("its own member: %v", err)
	}
	if err := os.Symlink(".", filepath.Join(dir, "d")); err != nil {
		t.Fatal(err)
	}
	put(t, lib, []byte("!<thin>\n"+fmt.Sprintf("%-48s%-10d`\n", "d/l.a/", 0)))
	if _, err := buildstep.File(lib, buildstep.Options{}); err == nil || !strings.Contains(err.Error(), "nested") {
		t.Errorf("its own member by ever longer names: %v", err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pipe/", "/0:68"} {
		put(t, lib, []byte("!<thin>\n"+fmt.Sprintf("%-48s%-10d`\npipe/\n", "//", 6)+fmt.Sprintf("%-48s%-10d`\n", name, 0)))
		if _, err := buildstep.File(lib, buildstep.Options{}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("a pipe as member %s: %v", name, err)
		}
	}
}

// An archive as BSD makes it, with its long names and its index.
func TestBSDArchive(t *testing.T) {
	testtool.Need(t, "llvm-ar", "llvm-nm")
	orig := object(t)
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.o"), orig)
	put(t, filepath.Join(dir, "a-name-longer-than-fifteen-letters.o"), orig)
	cmd := exec.Command("llvm-ar", "--format=bsd", "rcs", "lib.a", "a.o", "a-name-longer-than-fifteen-letters.o")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lib := filepath.Join(dir, "lib.a")
	before := get(t, lib)
	if !bytes.Contains(before, []byte("__.SYMDEF")) {
		t.Fatal("no index of BSD")
	}
	if out, err := buildstep.File(lib, buildstep.Options{}); err != nil || out.Recorded != 2 {
		t.Fatalf("%+v, %v", out, err)
	}
	symbols, err := exec.Command("llvm-nm", "--print-armap", lib).CombinedOutput()
	if err != nil || !bytes.Contains(symbols, []byte("f in a.o\n")) || !bytes.Contains(symbols, []byte("f in a-name-longer-than-fifteen-letters.o\n")) {
		t.Errorf("the index: %v %s", err, symbols)
	}
	src := put(t, filepath.Join(dir, "main.c"), []byte("int f(int); void __fentry__(void) {} int main(void) { return f(-1); }\n"))
	if out, err := exec.Command("gcc", "-fuse-ld=lld", src, lib, "-o", filepath.Join(dir, "prog")).CombinedOutput(); err != nil {
		t.Errorf("linking with the archive: %v: %s", err, out)
	}
	if _, err := buildstep.File(lib, buildstep.Options{Strip: true}); err != nil || !bytes.Equal(get(t, lib), before) {
		t.Errorf("strip does not give back the archive (%v)", err)
	}
}

func TestJobserver(t *testing.T) {
	orig := object(t)
	dir := t.TempDir()
	var jobs []buildstep.Job
	for i := range 20 {
		jobs = append(jobs, buildstep.Job{Path: put(t, filepath.Join(dir, fmt.Sprintf("%d.o", i)), orig)})
	}
	fifo := filepath.Join(dir, "jobs")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Write([]byte("xy"))
	t.Setenv("MAKEFLAGS", "j3 --jobserver-auth=fifo:"+fifo)
	next := 0
	buildstep.Run(jobs, 8, func(i int, o buildstep.Outcome, err error) {
		if i != next || err != nil || !o.Changed {
			t.Errorf("report %d, want %d: %+v, %v", i, next, o, err)
		}
		next++
	})
	if next != 20 {
		t.Errorf("%d reports", next)
	}
	if err := unix.SetNonblock(int(f.Fd()), true); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if n, err := unix.Read(int(f.Fd()), b); err != nil || n != 2 || !bytes.Contains(b[:n], []byte("x")) || !bytes.Contains(b[:n], []byte("y")) {
		t.Errorf("slots given back: %q, %v", b[:max(n, 0)], err)
	}
}
