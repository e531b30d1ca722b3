package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/trace"
)

// machineGo are Go programs for arm64 with C code: each calls C, and is called back on threads of C's, or has the race
// detector, whose memory is where no emulator of programs has any.
var machineGo = []struct{ name, prog, flag string }{
	{"cgo", "gocgo", "-trimpath"},
	{"cgo-pie", "gocgo", "-buildmode=pie"},
	{"race", "gostress", "-race"},
}

// TestMachineGoARM64 records such programs on an arm64 kernel. They print what they print untraced, and the calls that they
// have counted are those of the trace.
func TestMachineGoARM64(t *testing.T) {
	if !testtool.Wide() {
		t.Skip("the standard library is built once more only in wide runs")
	}
	t.Parallel()
	testtool.Need(t, "aarch64-linux-gnu-gcc")
	kernel, m := newMachine(t)
	m.files["etc/hosts"] = []byte("127.0.0.1 localhost\n")
	type try struct{ untraced, record int }
	var tries []try
	for _, p := range machineGo {
		out := filepath.Join(t.TempDir(), p.name)
		build := exec.Command("go", "build", "-o", out, p.flag, "../testdata/"+p.prog)
		build.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "CGO_ENABLED=1", "GOARCH=arm64", "CC=aarch64-linux-gnu-gcc")
		if said, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		m.files["own/"+p.name] = b
		for _, env := range []string{"GOMAXPROCS=1", "GOMAXPROCS=8 GOGC=1"} {
			tries = append(tries, try{m.add("/own", []string{"./" + p.name}, nil, nil),
				m.add("/own", []string{"/fentry", "record", "--overhead", "no", "-o", "/tmp/data", "./" + p.name}, strings.Fields(env), []string{"/tmp/data"})})
		}
	}
	outcomes := m.run(t, kernel, 14*time.Minute)
	for _, tr := range tries {
		if tr.record >= len(outcomes) {
			break // which has been reported
		}
		dir, j := t.TempDir(), &m.jobs[tr.record]
		got, want := &outcomes[tr.record], &outcomes[tr.untraced]
		got.unpack(t, dir)
		if got.Err != "" || want.Status != "exit 0" || got.Status != want.Status || string(got.Stdout) != string(want.Stdout) {
			t.Errorf("%v %v: %s, %s\n%s%s\nuntraced: %s, %s\n%s%s", j.Argv, j.Env, got.Status, got.Err, got.Stdout, got.Stderr,
				want.Status, want.Err, want.Stdout, want.Stderr)
			continue
		}
		counted := goCounted(string(got.Stderr))
		if have := goRecorded(t, filepath.Join(dir, "tmp", "data"), counted); len(counted) < 3 || !maps.Equal(have, counted) {
			t.Errorf("%v %v: recorded %v, counted %v", j.Argv, j.Env, have, counted)
		}
	}
}

// goCounted are the calls that a program says that it has counted.
func goCounted(said string) map[string]uint64 {
	counts := map[string]uint64{}
	for line := range strings.Lines(said) {
		var name string
		var n uint64
		if _, err := fmt.Sscan(line, &name, &n); err == nil && n != 0 {
			counts[name] = n
		}
	}
	return counts
}

// goRecorded are the calls that a trace has of functions.
func goRecorded(t *testing.T, data string, of map[string]uint64) map[string]uint64 {
	t.Helper()
	tr, err := trace.Open(data)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer tr.Close()
	rows, err := tr.Report(trace.ReportOptions{})
	if err != nil || tr.Lost != 0 {
		t.Errorf("%d events are lost, %v", tr.Lost, err)
	}
	counts := map[string]uint64{}
	for _, r := range rows {
		if _, ok := of[r.Name]; ok {
			counts[r.Name] += r.Calls
		}
	}
	return counts
}
