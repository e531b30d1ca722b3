package e2e

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/debs"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/trace"
)

// walked are programs whose stacks are walked at any moment, and what makes them work for a while.
var walked = []struct {
	name string
	argv []string
}{
	{"python3", []string{"/usr/bin/python3", "-c", "import json, re\nfor i in range(300): json.loads(json.dumps(list(range(3000)))); re.compile('(a|b)*%d' % i)"}},
	{"perl", []string{"perl", "-e", "my %h; $h{$_ % 997} .= chr(65 + $_ % 26) for 1..1500000; print length join '', sort values %h"}},
	{"git", []string{"git", "--git-dir=DIR/git", "fsck", "--full"}},
	{"cc1", []string{"gcc", "-O2", "-c", "-o", "/dev/null", "testdata/stacks/backtraces.c", "-include", "stdio.h"}},
	{"cc1plus", []string{"g++", "-O2", "-c", "-x", "c++", "-o", "/dev/null", "-"}},
	{"awk", []string{"awk", "{ a[$1 % 977] = a[$1 % 977] $1; if (length(a[$1 % 977]) > 999) delete a[$1 % 977] } END { print length(a) }", "DIR/lines"}},
	{"xz", []string{"xz", "-9", "-k", "-c", "DIR/lines"}},
	{"tar", []string{"tar", "-czf", "/dev/null", "/usr/include"}},
	{"find", []string{"find", "/usr/share", "/usr/lib", "-name", "*x*y*", "-newer", "/etc/passwd"}},
	{"grep", []string{"grep", "-rEc", "(a|b)*c(d|e)+.*[0-9]{3}x", "/usr/include"}},
	{"bash", []string{"bash", "-c", "for ((i = 0; i < 60000; i++)); do x=${x:0:200}$i; case $x in *77*) y=1;; esac; done"}},
	{"openssl", []string{"openssl", "genrsa", "4096"}},
	{"gdb", []string{"gdb", "-batch", "-ex", "info functions x", "/usr/bin/gdb"}},
	{"node", []string{"node", "-e", "let a = []; for (let i = 0; i < 3e6; i++) a[i % 1000] = JSON.stringify({i, s: 'x' + i})"}},
}

// TestWalks compares walks of real programs, a thousand a second, with those of libgcc at the same moment, address by address:
// they are equal, or shorter and say why.
func TestWalks(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("stacks are walked on x86-64")
	}
	if !testtool.Wide() {
		t.Skip("wide")
	}
	needFentry(t)
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	preload := filepath.Join(dir, "profile.so")
	if out, err := exec.Command("gcc", "-O1", "-shared", "-fPIC", "-o", preload, "testdata/stacks/profile.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	var lines strings.Builder
	for i := range 400000 {
		fmt.Fprintln(&lines, i*7919%1000003)
	}
	if err := os.WriteFile(filepath.Join(dir, "lines"), []byte(lines.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("git", "clone", "-q", "--bare", "..", filepath.Join(dir, "git")).CombinedOutput(); err != nil {
		t.Logf("git clone: %v\n%s", err, out)
	}
	programs := 0
	for _, w := range walked {
		if _, err := exec.LookPath(w.argv[0]); err != nil {
			t.Logf("%s is not installed", w.argv[0])
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			said, data := filepath.Join(t.TempDir(), "walks"), filepath.Join(dir, "data")
			argv := []string{fentry, "record", "-o", data, "-F", "none", "--stack-at", "getppid", "--overhead", "no", "--"}
			for _, a := range w.argv {
				argv = append(argv, strings.ReplaceAll(a, "DIR", dir))
			}
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Env = append(os.Environ(), "LD_PRELOAD="+preload, "FENTRY_WALKS="+said)
			cmd.Stdin = strings.NewReader("#include <regex>\n#include <iostream>\n#include <map>\nint main() { std::regex r(\"a*\"); return std::map<int, std::regex>().size(); }\n")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Logf("%v: %.300s", err, out)
			}
			n, shorter := compareWalks(t, data, said)
			t.Logf("%s: %d walks, %d shorter: %v", w.name, n, sum(shorter), shorter)
			if n < 50 {
				t.Errorf("%d walks are not many", n)
			}
		})
		programs++
	}
	if programs < 10 {
		t.Errorf("%d programs, ten are wanted", programs)
	}
}

// walkedARM64 are programs for arm64 and what makes them work for longer; others of arm64Installed read more.
var walkedARM64 = map[string][]string{
	"python3.11": {"python3.11", "-S", "-c", "def f(n): return n if n < 2 else f(n-1) + f(n-2)\nprint(f(19), sorted(str(i) for i in range(20000))[7])"},
	"perl":       {"perl", "-e", "my %h; $h{$_ % 997} .= chr(65 + $_ % 26) for 1..150000; print length join '', sort values %h"},
	"bash":       {"bash", "-c", "for ((i = 0; i < 6000; i++)); do x=${x:0:200}$i; case $x in *77*) y=1;; esac; done"},
}

// TestWalksARM64 does so with Debian's programs for arm64, under qemu-user.
func TestWalksARM64(t *testing.T) {
	if !testtool.Wide() {
		t.Skip("wide")
	}
	arm64.need(t)
	needFentry(t)
	dir := t.TempDir()
	preload := filepath.Join(dir, "profile.so")
	args := append(arm64.compiler(t, "gcc"), "-O1", "-shared", "-fPIC", "-DPERIOD=1000000", "-o", preload, "testdata/stacks/profile.c")
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	root := debs.Root(t, arm64Packages...)
	all, programs := 0, 0
	for _, p := range arm64Installed() {
		if argv := walkedARM64[filepath.Base(p.path)]; argv != nil {
			p.argv = argv
		}
		p.stdin = strings.Repeat(p.stdin, 100)
		t.Run(filepath.Base(p.path), func(t *testing.T) {
			file, err := filepath.EvalSymlinks(filepath.Join(root, p.path))
			if err != nil {
				t.Fatal(err)
			}
			said, data := filepath.Join(t.TempDir(), "walks"), filepath.Join(t.TempDir(), "data")
			emulator := fmt.Sprintf("%s -L %s -E LD_PRELOAD=%s -E FENTRY_WALKS=%s", testtool.Path(t, arm64.emulator[0]), root, preload, said)
			p.run(t, file, fentry, "record", "-q", "--emulator", emulator, "-o", data, "-F", "none", "--stack-at", "getppid", "--overhead", "no")
			n, shorter := compareWalks(t, data, said)
			t.Logf("%d walks, %d shorter: %v", n, sum(shorter), shorter)
			if all += n; n > 0 {
				programs++
			}
		})
	}
	if all < 500 || programs < 10 {
		t.Errorf("%d walks of %d programs are not many", all, programs)
	}
}

func sum(m map[string]int) (n int) {
	for v := range maps.Values(m) {
		n += v
	}
	return n
}

// compareWalks compares the stacks of a trace with what the preloaded library has said. It returns how many there were, and
// how many of them ended before libgcc's, by their reasons.
func compareWalks(t *testing.T, data, said string) (n int, shorter map[string]int) {
	t.Helper()
	type task struct{ pid, tid int }
	want := map[task][][]uint64{}
	f, err := os.Open(said)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Buffer(nil, 1<<20); sc.Scan(); {
		var k task
		var pcs []uint64
		for i, word := range strings.Fields(sc.Text()) {
			base := 16
			if i < 2 {
				base = 10
			}
			v, err := strconv.ParseUint(word, base, 64)
			if err != nil {
				t.Fatal(err)
			}
			switch i {
			case 0:
				k.pid = int(v)
			case 1:
				k.tid = int(v)
			default:
				pcs = append(pcs, v)
			}
		}
		want[k] = append(want[k], pcs)
	}
	tr, err := trace.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	shorter = map[string]int{}
	bad := 0
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if ev.Kind != trace.Stacktrace || bad > 5 {
			return nil
		}
		// In front are libc's syscall and the handler.
		labels := labels(tr, ev.Backtrace)
		i := slices.Index(labels, "profile_handler")
		if i < 0 {
			return nil // the program's own call
		}
		k := task{ev.Task.PID, ev.Task.TID}
		if len(want[k]) == 0 {
			t.Errorf("%v: a walk that nobody has asked for", k)
			bad++
			return nil
		}
		pcs := want[k][0]
		want[k] = want[k][1:]
		n++
		// libgcc begins with the handler, too, at another call.
		have := ev.Backtrace.Frames[i+1:]
		if pcs = pcs[1:]; len(pcs) > 0 && pcs[len(pcs)-1] == 0 { // what it has above a thread's first function
			pcs = pcs[:len(pcs)-1]
		}
		for j := range min(len(have), len(pcs)) {
			if have[j].PC != pcs[j] {
				t.Errorf("%v: walk %d, frame %d of %d: %#x, libgcc has %#x\n%q %s\n%x", k, n, j, len(have), have[j].PC, pcs[j],
					labels[i+1:], ev.Backtrace.End, pcs)
				bad++
				return nil
			}
		}
		switch {
		case len(have) < len(pcs) && ev.Backtrace.End == "outermost", len(have) > len(pcs):
			t.Errorf("%v: walk %d has %d frames, %s; libgcc %d: %q\n%x", k, n, len(have), ev.Backtrace.End, len(pcs), labels[i+1:], pcs)
			bad++
		case len(have) < len(pcs):
			if shorter[ev.Backtrace.End]++; shorter[ev.Backtrace.End] == 1 {
				t.Logf("%s behind %q, %x", ev.Backtrace.End, labels[i+1:], pcs[:len(have)+1])
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return n, shorter
}
