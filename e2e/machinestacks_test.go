package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// addProgram compiles a program into the machine's directory /own.
func (m *machine) addProgram(t *testing.T, name, source string, flags ...string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	compiler := "gcc"
	if filepath.Ext(source) == ".cc" {
		compiler = "g++"
	}
	argv := slices.Concat(arm64.compiler(t, compiler), []string{"-g", "-o", out, source, "-lpthread"}, flags)
	run(t, command{argv: argv}).mustSucceed(t)
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	m.files["own/"+name] = b
}

// TestMachineStacksARM64 is TestBacktraces on an arm64 kernel: tracing begins at the exec stop, handlers return through the
// vdso, and the C library's system calls are the loader's and its own.
func TestMachineStacksARM64(t *testing.T) {
	t.Parallel()
	kernel, m := newMachine(t)
	type try struct{ job, front int }
	var tries []try
	for name, flags := range map[string][]string{
		"dynamic": {"-O2", "-fno-optimize-sibling-calls"},
		"static":  {"-O2", "-fno-optimize-sibling-calls", "-static"},
		"signed":  {"-O2", "-fno-optimize-sibling-calls", "-mbranch-protection=standard"},
	} {
		m.addProgram(t, name, "testdata/stacks/backtraces.c", flags...)
		record := []string{"/fentry", "record", "-o", "/tmp/data", "--overhead", "no"}
		for front, options := range map[int][]string{0: {"--stack", "leaf"}, 2: {"--stack-at", "getppid", "-F", "none"}} {
			argv := slices.Concat(record, options, []string{"./" + name})
			tries = append(tries, try{m.add("/own", argv, nil, []string{"/tmp/data"}), front})
		}
	}
	outcomes := m.run(t, kernel, 14*time.Minute)
	for _, tr := range tries {
		if tr.job < len(outcomes) {
			dir, argv := t.TempDir(), m.jobs[tr.job].Argv
			outcomes[tr.job].unpack(t, dir)
			r := outcomes[tr.job].result(argv).mustSucceed(t)
			compareSaid(t, filepath.Join(dir, "tmp", "data"), tr.front, command{argv: argv}, r)
		}
	}
}

// TestMachineExecutesARM64 is TestExecutes on an arm64 kernel.
func TestMachineExecutesARM64(t *testing.T) {
	t.Parallel()
	kernel, m := newMachine(t)
	type try struct{ untraced, record int }
	var tries []try
	for name, flags := range map[string][]string{"dynamic": {"-O1"}, "static": {"-O1", "-static"}} {
		m.addProgram(t, name, "testdata/following/executes.c", flags...)
		path := []string{"PATH=/own:/bin"}
		tries = append(tries, try{m.add("/own", []string{"./" + name}, path, nil),
			m.add("/own", []string{"/fentry", "record", "-v", "--overhead", "no", "-o", "/tmp/data", "-F", "child", "./" + name}, path, []string{"/tmp/data"})})
	}
	outcomes := m.run(t, kernel, 14*time.Minute)
	for _, tr := range tries {
		if tr.record >= len(outcomes) {
			break // which has been reported
		}
		dir := t.TempDir()
		got, want := &outcomes[tr.record], &outcomes[tr.untraced]
		got.unpack(t, dir)
		if got.Err != "" || got.Status != want.Status || string(got.Stdout) != string(want.Stdout) || !strings.Contains(string(want.Stdout), "last") {
			t.Errorf("%v: %s, %s\n%s%s\nuntraced: %s, %s\n%s", m.jobs[tr.record].Argv, got.Status, got.Err, got.Stdout, got.Stderr,
				want.Status, want.Err, want.Stdout)
			continue
		}
		if n := children(t, filepath.Join(dir, "tmp", "data")); n != 12 {
			t.Errorf("%v: %d programs called child, want 12\n%s", m.jobs[tr.record].Argv, n, got.Stderr)
		}
	}
}

// TestMachineLibrariesARM64 is TestRecordLater on an arm64 kernel: libraries that are loaded with a program, and later, are
// traced, and what opens them is recorded as a system call.
func TestMachineLibrariesARM64(t *testing.T) {
	if !testtool.Wide() {
		t.Skip("five programs are run on an emulated kernel only if FENTRY_WIDE is 1")
	}
	t.Parallel()
	kernel, m := newMachine(t)
	m.addProgram(t, "libwork.so.3", "testdata/library/work.cc", "-O2", "-shared", "-fPIC")
	m.addProgram(t, "works", "testdata/library/works.cc", "-O2")
	argv := []string{"./works", "/own/libwork.so.3"}
	untraced := m.add("/own", argv, nil, nil)
	var traced []int
	for _, options := range [][]string{
		{"-L", "libwork", "--overhead", "no"}, {"-L", "libwork", "--overhead", "no", "--syscalls"}, {"-L", "*", "--tracer", "count"},
		{"-L", "*", "--overhead", "no", "--syscalls"},
	} {
		record := append([]string{"/fentry", "record", "-v", "-o", "/tmp/data"}, options...)
		traced = append(traced, m.add("/own", append(record, argv...), nil, []string{"/tmp/data"}))
	}
	outcomes := m.run(t, kernel, 14*time.Minute)
	for _, job := range traced {
		if job >= len(outcomes) {
			break // which has been reported
		}
		got, want := &outcomes[job], outcomes[untraced].result(argv).mustSucceed(t)
		if got.Err != "" || got.Status != want.status || string(got.Stdout) != want.stdout {
			t.Errorf("%v: %s, %s\n%s%s\nuntraced:\n%s", m.jobs[job].Argv, got.Status, got.Err, got.Stdout, got.Stderr, want.stdout)
			continue
		}
		dir := t.TempDir()
		got.unpack(t, dir)
		checkWork(t, filepath.Join(dir, "tmp", "data"))
		if strings.Contains(string(got.Stderr), "later are not traced") {
			t.Errorf("%v: %s", m.jobs[job].Argv, got.Stderr)
		}
	}
}

// thrown is how often testdata/stacks/thrown.cc calls its function that throws.
const thrown = 5 * 210

// TestMachineThrownARM64 is TestThrown on an arm64 kernel, where the cross compiler's C library may be one that reads its
// program headers by the ELF header alone (2.36, as it was released).
func TestMachineThrownARM64(t *testing.T) {
	t.Parallel()
	kernel, m := newMachine(t)
	type try struct{ untraced, record int }
	var tries []try
	for name, flags := range map[string][]string{"dynamic": {"-O1"}, "static": {"-O1", "-static"}, "static-pie": {"-O1", "-static-pie"}} {
		m.addProgram(t, name, "testdata/stacks/thrown.cc", flags...)
		tries = append(tries, try{m.add("/own", []string{"./" + name}, nil, nil),
			m.add("/own", []string{"/fentry", "record", "--overhead", "no", "-o", "/tmp/data", "./" + name}, nil, []string{"/tmp/data"})})
	}
	outcomes := m.run(t, kernel, 14*time.Minute)
	for _, tr := range tries {
		if tr.record >= len(outcomes) {
			break // which has been reported
		}
		dir, argv := t.TempDir(), m.jobs[tr.record].Argv
		outcomes[tr.record].unpack(t, dir)
		want := outcomes[tr.untraced].result(argv[:1]).mustSucceed(t)
		checkThrown(t, filepath.Join(dir, "tmp", "data"), outcomes[tr.record].result(argv), want)
	}
}

// checkThrown compares a recorded run of the program with an untraced one.
func checkThrown(t *testing.T, data string, got, want *result) {
	t.Helper()
	if got.err != nil || got.status != want.status || got.stdout != want.stdout || !strings.Contains(want.stdout, "deep 1") {
		t.Errorf("%s, %v\n%s%s\nuntraced:\n%s", got.status, got.err, got.stdout, got.stderr, want.stdout)
		return
	}
	if n := calls(t, data, "thrower"); n != thrown {
		t.Errorf("thrower was called %d times, want %d\n%s", n, thrown, got.stderr)
	}
}

// TestThrown: static programs throw, catch, walk their stacks and have their thread-local memory.
func TestThrown(t *testing.T) {
	needFentry(t)
	for name, flags := range map[string][]string{"dynamic": {"-O1"}, "static": {"-O1", "-static"}, "static-pie": {"-O1", "-static-pie"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prog, data := filepath.Join(t.TempDir(), "prog"), filepath.Join(t.TempDir(), "data")
			run(t, command{argv: slices.Concat(target{}.compiler(t, "g++"), []string{"-o", prog, "testdata/stacks/thrown.cc", "-pthread"}, flags)}).mustSucceed(t)
			want := run(t, command{argv: []string{prog}}).mustSucceed(t)
			checkThrown(t, data, run(t, command{argv: []string{fentry, "record", "--overhead", "no", "-o", data, prog}}), want)
		})
	}
}
