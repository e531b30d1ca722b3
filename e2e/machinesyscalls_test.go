package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/internal/syscalls"
)

// machineSyscalls are the jobs of a machine that record system calls of a program: a static one, and one whose dynamic
// loader and C library make them, untraced and recorded.
type machineSyscalls struct{ untraced, recorded []int }

// addSyscalls puts the program into the machine.
func (m *machine) addSyscalls(t *testing.T) (s machineSyscalls) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.c"), []byte(callingARM64), 0o666); err != nil {
		t.Fatal(err)
	}
	m.files["etc/passwd"] = make([]byte, 100)
	for _, link := range []string{"-static", "-rdynamic"} {
		name := "syscalls" + link
		run(t, command{dir: dir, argv: append(arm64.compiler(t, "gcc"), "-O1", "-pthread", link, "-o", name, "p.c")}).mustSucceed(t)
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		m.files["syscalls/"+name] = b
		s.untraced = append(s.untraced, m.add("/syscalls", []string{"./" + name}, nil, nil))
		s.recorded = append(s.recorded, m.add("/syscalls",
			[]string{"/fentry", "record", "--syscalls", "-F", "none", "-o", "/tmp/data", "./" + name}, nil, []string{"/tmp/data"}))
	}
	return s
}

// check compares behaviour, and the calls that the program makes by itself; the dynamic loader's are there, too.
func (s *machineSyscalls) check(t *testing.T, m *machine, outcomes []machineOutcome) {
	t.Helper()
	numbers := map[uint64]string{}
	for _, c := range syscalls.ARM64.Calls() {
		numbers[uint64(c.Number)] = c.Name
	}
	own := map[string]int{"sched_yield": 150, "getpgid": 3, "getuid": 2, "getpriority": 1, "clone": 5, "getsid": 2, "wait4": 2,
		"exit_group": 3, "exit": 3, "write": 1}
	for i, job := range s.recorded {
		if job >= len(outcomes) {
			return // which has been reported
		}
		want, got := &outcomes[s.untraced[i]], &outcomes[job]
		if got.Status != "exit 0" || got.Status != want.Status || got.Err != "" || string(got.Stdout) != string(want.Stdout) {
			t.Errorf("%v: %s, %s\n%s%s\nuntraced: %s, %s", m.jobs[job].Argv, got.Status, got.Err, got.Stdout, got.Stderr, want.Status, want.Err)
			continue
		}
		dir := t.TempDir()
		got.unpack(t, dir)
		all := recordedSyscalls(t, filepath.Join(dir, "tmp", "data"), numbers)
		have := maps.Clone(all)
		maps.DeleteFunc(have, func(name string, _ int) bool { return own[name] == 0 })
		if !maps.Equal(have, own) {
			t.Errorf("%v: recorded %v, want %v\n%s", m.jobs[job].Argv, have, own, got.Stderr)
		}
		// One file is the program's; the dynamic loader opens the C library.
		if n := all["openat"]; slices.Contains(m.jobs[job].Argv, "./syscalls-rdynamic") != (n > 1) {
			t.Errorf("%v: %d calls of openat\n%s", m.jobs[job].Argv, n, got.Stderr)
		}
	}
}
