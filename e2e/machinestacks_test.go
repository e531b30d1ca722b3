package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// addProgram compiles a program into the machine's directory /own.
func (m *machine) addProgram(t *testing.T, name, source string, flags ...string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	argv := slices.Concat(arm64.compiler(t, "gcc"), []string{"-g", "-o", out, source, "-lpthread"}, flags)
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
