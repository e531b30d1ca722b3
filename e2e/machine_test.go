package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/e2e/corpus"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// A machine is a virtual one: Debian's kernel with a file system in memory. It runs jobs one after another and is gone.
type machine struct {
	files map[string][]byte
	jobs  []machineJob
}

// machineJob and machineOutcome are what testdata/machine takes and gives.
type machineJob struct {
	Dir  string
	Argv []string
	Env  []string
	Keep []string
}

type machineOutcome struct {
	Stdout, Stderr []byte
	Status, Err    string
	Files          []byte
}

func (o *machineOutcome) result(argv []string) *result {
	r := &result{argv: argv, stdout: string(o.Stdout), stderr: string(o.Stderr), status: o.Status}
	if o.Err != "" {
		r.err = errors.New(o.Err)
	}
	return r
}

// add puts a job behind the others and returns its number.
func (m *machine) add(dir string, argv, env, keep []string) int {
	env = append([]string{"LC_ALL=C.UTF-8", "TZ=UTC", "PATH=/bin", "HOME=/tmp"}, env...)
	m.jobs = append(m.jobs, machineJob{dir, argv, env, keep})
	return len(m.jobs) - 1
}

// addDir puts a directory's files below a path.
func (m *machine) addDir(t testing.TB, below, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		m.files[path.Join(below, rel)], err = os.ReadFile(p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// archive is the file system as the kernel takes it: cpio's "newc" form (Documentation/driver-api/early-userspace/buffer-format.rst).
func (m *machine) archive() []byte {
	var b bytes.Buffer
	n := 0
	entry := func(name string, mode int, data []byte) {
		n++
		fmt.Fprintf(&b, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", n, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
		b.WriteString(name + "\x00")
		b.Write(make([]byte, -b.Len()&3))
		b.Write(data)
		b.Write(make([]byte, -b.Len()&3))
	}
	made := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		for i := range name {
			if dir := name[:i]; name[i] == '/' && dir != "" && !made[dir] {
				made[dir] = true
				entry(dir, 0o40755, nil)
			}
		}
		entry(name, 0o100755, m.files[name])
	}
	entry("TRAILER!!!", 0, nil)
	return b.Bytes()
}

// mostPanics is how often the machine may be started again.
const mostPanics = 3

// run starts the machine and returns what came of the jobs. A machine whose kernel panics is started again for the jobs
// that are left: on a busy host, Debian's 6.1.176 does so in its lists of inherited perf events, now and then. oops=panic
// has it end then; it would stand still else, with a processor less.
func (m *machine) run(t testing.TB, kernel string, limit time.Duration) (outcomes []machineOutcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for n := 0; ; n++ {
		more, said, err := m.start(ctx, t, kernel, m.jobs[len(outcomes):])
		outcomes = append(outcomes, more...)
		switch {
		case err == nil && len(outcomes) == len(m.jobs):
			return outcomes
		case n == mostPanics || !strings.Contains(said, "Kernel panic - not syncing: Oops"):
			t.Errorf("the machine did %d of %d jobs: %v\n%s", len(outcomes), len(m.jobs), err, clip(said))
			return outcomes
		}
		t.Logf("after %d of %d jobs: %s", len(outcomes), len(m.jobs), said)
	}
}

// quietly has the kernel write nothing between the outcomes on the console, on a busy host neither: only when it panics.
const quietly = "console=ttyAMA0 loglevel=1 nosoftlockup rcupdate.rcu_cpu_stall_suppress=1 oops=panic panic=-1"

// start runs jobs in the machine until it ends. said is what it wrote on its console beside their outcomes.
func (m *machine) start(
	ctx context.Context, t testing.TB, kernel string, jobs []machineJob,
) (outcomes []machineOutcome, said string, err error) {
	t.Helper()
	dir := t.TempDir()
	if m.files["jobs.json"], err = json.Marshal(jobs); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "initrd"), m.archive(), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "qemu-system-aarch64", "-M", "virt", "-cpu", "max,pauth-impdef=on", "-smp", "2", "-m", "2048", "-nic", "none", "-nographic",
		"-no-reboot", "-kernel", kernel, "-initrd", filepath.Join(dir, "initrd"), "-append", quietly)
	out, err := cmd.CombinedOutput()
	var text, other strings.Builder
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\r\n")
		switch rest, ok := strings.CutPrefix(line, "@"); {
		case !ok:
			other.WriteString(line + "\n")
		case rest == ".":
			outcomes = append(outcomes, decodeOutcome(t, text.String()))
			text.Reset()
		case rest != "end":
			text.WriteString(rest)
		}
	}
	return outcomes, other.String(), err
}

func decodeOutcome(t testing.TB, text string) (o machineOutcome) {
	t.Helper()
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
	if err == nil {
		err = json.NewDecoder(z).Decode(&o)
	}
	if err != nil {
		t.Fatalf("what the machine says: %v", err)
	}
	return o
}

// unpack writes the files of an outcome below dir.
func (o *machineOutcome) unpack(t testing.TB, dir string) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(o.Files)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		var b []byte
		if err == nil {
			b, err = io.ReadAll(r)
		}
		name := filepath.Join(dir, h.Name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(name), 0o755)
		}
		if err == nil {
			err = os.WriteFile(name, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// newMachine returns the kernel, and a machine with the C library, fentry and the init that runs jobs. It skips the test
// where one of them cannot be had.
func newMachine(t *testing.T) (kernel string, m *machine) {
	t.Helper()
	needFentry(t)
	testtool.Need(t, "qemu-system-aarch64")
	kernel, err := corpus.Kernel(context.Background(), "arm64")
	var missing *corpus.Missing
	if errors.As(err, &missing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	m = &machine{files: map[string][]byte{}}
	bin := t.TempDir()
	for file, pkg := range map[string]string{"init": "./testdata/machine", "fentry": "../cmd/fentry"} {
		build := exec.Command("go", "build", "-o", filepath.Join(bin, file), pkg)
		build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	m.addDir(t, "", bin)
	m.files["bin/sh"] = m.files["init"]
	for _, lib := range []string{"ld-linux-aarch64.so.1", "libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6"} {
		b, err := os.ReadFile(filepath.Join("/usr", arm64.triple, "lib", lib))
		if err != nil {
			t.Skipf("%v: apt-get install g++-%s", err, arm64.triple)
		}
		m.files["lib/"+lib] = b
	}
	return kernel, m
}

// A machineTry is one run of a fixture in the machine: the numbers of its jobs, and what was patched.
type machineTry struct {
	p               *program
	args            []string
	untraced        int
	record, patched int
	files           []string
}

// addFixture puts a program into the machine below a directory, with the jobs that run it.
func (m *machine) addFixture(t *testing.T, p *program, at string) (tries []machineTry) {
	t.Helper()
	f := p.fixture
	patchedDir := filepath.Join(t.TempDir(), "patched")
	copyDir(t, p.dir, patchedDir)
	var files []string
	for _, n := range append([]string{f.name}, f.words("companion")...) {
		out := filepath.Join(patchedDir, n)
		if err := os.Remove(out); err != nil {
			t.Fatal(err)
		}
		patchFile(t, filepath.Join(p.dir, n), out, nil)
		files = append(files, out)
	}
	m.addDir(t, at+"/untraced", p.dir)
	m.addDir(t, at+"/patched", patchedDir)
	recorded := at + "/untraced"
	if len(f.words("companion")) > 0 {
		recorded = at + "/recorded"
		m.addDir(t, recorded, patchedDir)
		m.files[path.Join(recorded, f.name)] = m.files[path.Join(at, "untraced", f.name)]
	}
	for _, args := range f.runs() {
		argv := append([]string{"./" + f.name}, args...)
		counts := []string{"FIXTURE_COUNTS=/tmp/counts"}
		keep := func(dir string) []string {
			k := []string{"/tmp/counts", "/tmp/data"}
			for _, s := range f.words("show") {
				k = append(k, path.Join("/", dir, s))
			}
			return k
		}
		tries = append(tries, machineTry{p, args,
			m.add("/"+at+"/untraced", argv, counts, keep(at+"/untraced")),
			m.add("/"+recorded, append([]string{"/fentry", "record", "--no-inherit", "-o", "/tmp/data"}, argv...), counts, keep(recorded)),
			m.add("/"+at+"/patched", argv, append(counts, "FENTRY_DATA=/tmp/data"), keep(at+"/patched")),
			files,
		})
	}
	return tries
}

// check compares what came of a fixture's jobs.
func (tr *machineTry) check(t *testing.T, m *machine, outcomes []machineOutcome) {
	t.Helper()
	f := tr.p.fixture
	finish := func(t testing.TB, job int) (*result, string) {
		o := &outcomes[job]
		dir := t.TempDir()
		o.unpack(t, dir)
		r := o.result(m.jobs[job].Argv)
		tr.p.show(t, filepath.Join(dir, m.jobs[job].Dir), r)
		return r, dir
	}
	want, _ := finish(t, tr.untraced)
	if want.err != nil {
		t.Errorf("%s %s: untraced: %v\n%s", f.name, tr.p.config, want.err, clip(want.stderr))
		return
	}
	for way, job := range map[way]int{byRecord: tr.record, byPatching: tr.patched} {
		if way == byPatching && len(f.words("path")) > 0 {
			continue // it is at another place here
		}
		t.Run(strings.Join(append([]string{f.name, tr.p.config.String(), string(way)}, tr.args...), "/"), func(t *testing.T) {
			r, dir := finish(t, job)
			if strings.Contains(r.stderr, "cannot be traced in place") {
				t.Errorf("not injected: %s", clip(r.stderr))
			}
			got := &traced{result: r, dir: filepath.Join(dir, "tmp", "data"), files: tr.files,
				truth: readCounts(t, filepath.Join(dir, "tmp", "counts"))}
			if way == byRecord && len(f.words("companion")) == 0 {
				got.files = nil
			}
			checkRun(t, tr.p, tr.args, want, got)
		})
	}
}

// TestMachineArm64 runs arm64 programs on an arm64 kernel, where fentry record can use ptrace: injected at the exec stop,
// and patched. The kernel enforces landing pads (BTI) and does vfork and ptrace itself, other than qemu-user.
func TestMachineArm64(t *testing.T) {
	t.Parallel()
	kernel, m := newMachine(t)
	// What depends on the kernel, and what it enforces.
	fixtures := []string{"abi", "backtrace", "debugger", "ends", "exceptions", "exec", "fork", "jumps", "self", "signals", "threads", "vfork"}
	if testtool.Wide() {
		fixtures = append(fixtures, "cancel", "closefds", "coroutines", "cothrow", "daemon", "early", "frames", "ifunc", "nested", "second", "tailcalls", "terminate")
	}
	var all []config
	for _, c := range configsOf(arm64Kinds) {
		c.kind.target.emulator, c.kind.cpu = nil, ""
		all = append(all, c)
	}
	var tries []machineTry
	for i, name := range fixtures {
		f := loadFixture(t, name)
		// By turns one that is loaded by an interpreter and one that is not, if it can be static.
		chosen := choose(f, i, all)
		if !testtool.Wide() {
			k := slices.IndexFunc(chosen, func(c config) bool { return strings.HasPrefix(c.link.name, "static") == (i%2 == 1) })
			chosen = chosen[max(k, 0):][:1]
		}
		for _, c := range chosen {
			// One path for all, since a program may look at its own; what is there is moved by the jobs' directories' names.
			tries = append(tries, m.addFixture(t, build(t, f, c), fmt.Sprintf("p%d-%s", len(tries), name))...)
		}
	}
	calls := m.addSyscalls(t)
	outcomes := m.run(t, kernel, 14*time.Minute)
	calls.check(t, m, outcomes)
	for _, tr := range tries {
		if tr.patched >= len(outcomes) {
			break // the machine did not get so far, which has been reported
		}
		tr.check(t, m, outcomes)
	}
}
