//go:build linux

package tracefs_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// kernelSource is what Debian's package has: the kernel's own tests of ftrace are in it.
const kernelSource = "/usr/src/linux-source-6.1.tar.xz"

// TestKernel runs the kernel's own tests of ftrace, unmodified, where the kernel's own tracefs is not mounted, and compares
// what passes with what docs/tracefs.md says. Many wait for a moment and then look whether something happened, so what does
// not pass is tried again.
func TestKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mount namespaces are made by root")
	}
	testtool.Long(t)
	testtool.Need(t, kernelSource, "tar", "xz", "unshare")
	want := documentedTests(t)
	m := mount(t)
	dir := unpackKernelTests(t)
	there := testsIn(t, dir)
	checkTable(t, want, there)
	const tries = 4
	tests := kernelTests{dir: dir, mnt: m.dir, modules: writeModules(t, m.program.Process.Pid)}
	got := tests.run(t, there, want)
	for range tries {
		var again []string
		for _, name := range there {
			if want[name] != "" && got[name] != want[name] {
				again = append(again, name)
			}
		}
		if len(again) == 0 {
			break
		}
		t.Logf("again: %q", again)
		maps.Copy(got, tests.run(t, again, want))
	}
	for _, name := range there {
		if result, documented := want[name]; documented && got[name] != result {
			t.Errorf("%s: passes %q, want %q", name, got[name], result)
		}
	}
	m.is("current_tracer", "nop\n")
	m.is("set_ftrace_filter", "#### all functions enabled ####\n")
}

// checkTable compares the tests of the table with those of the source. Debian updates its package, with a test more or less:
// that is only logged. But what the table says to pass has to be there, or nothing of it would be shown.
func checkTable(t *testing.T, want map[string]string, there []string) {
	t.Helper()
	for _, name := range there {
		if _, documented := want[name]; !documented {
			t.Logf("%s: is in %s, and has no row", name, kernelSource)
		}
	}
	for name, result := range want {
		switch {
		case slices.Contains(there, name):
		case result != "":
			t.Errorf("%s: %s, and is not in %s", name, result, kernelSource)
		default:
			t.Logf("%s: has a row, and is not in %s", name, kernelSource)
		}
	}
}

// Where a test passes, as the table says it.
const (
	passes    = "passes"
	passesAll = "passes, in instances, too"
)

// documentedTests are the tests in the table of docs/tracefs.md: where they pass, "" if nowhere.
func documentedTests(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("../docs/tracefs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "## The kernel's own tests")
	tests := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `([\\w/-]+)` \\| (.*) \\|$").FindAllStringSubmatch(table, -1) {
		tests[row[1]] = ""
		if row[2] == passes || row[2] == passesAll {
			tests[row[1]] = row[2]
		}
	}
	return tests
}

// unpackKernelTests returns the directory of ftracetest.
func unpackKernelTests(t *testing.T) string {
	t.Helper()
	const within = "linux-source-6.1/tools/testing/selftests/ftrace"
	dir := t.TempDir()
	testtool.Output(t, "tar", "-xJf", kernelSource, "-C", dir, within)
	return filepath.Join(dir, within)
}

// testsIn are the tests that there are.
func testsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(filepath.Join(dir, "test.d")), ".", func(path string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(path, ".tc"); ok {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// modules are what stands for modprobe and rmmod: the kernel's module that the tests load is a library of the program.
const modules = `#!/bin/sh
case $1 in
trace[-_]printk) printf %%s %s >/proc/%d/fd/0 && head -c 1 </proc/%d/fd/1 >/dev/null ;;
*) exit 1 ;;
esac
`

// writeModules writes the two to a directory.
func writeModules(t *testing.T, pid int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, ask := range map[string]string{"modprobe": "l", "rmmod": "u"} {
		if err := runfile.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, modules, ask, pid, pid)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// kernelScript runs ftracetest in $1 with logs in $2 on $3, with programs in $4: it takes the first mount that has to do with tracefs.
const kernelScript = `set -e
mount --make-rprivate /
for d in $(awk -v mine="$3" '/tracefs|debugfs/ && $2 != mine {print $2}' /proc/mounts); do umount -l "$d"; done
echo 950000 >"$2.rt"
mount --bind "$2.rt" /proc/sys/kernel/sched_rt_runtime_us
cd "$1"
logs=$2; shift 3
PATH=$1:$PATH
shift
exec ./ftracetest -k -l "$logs" "$@"`

// kernelTests are the directories of ftracetest, of a tracefs, and of modprobe and rmmod.
type kernelTests struct{ dir, mnt, modules string }

// run runs tests, and returns where each passes. What fails that is to pass is logged.
func (k *kernelTests) run(t *testing.T, names []string, want map[string]string) map[string]string {
	t.Helper()
	if b, _ := os.ReadFile("/proc/mounts"); strings.Count(string(b), "tracefs "+k.mnt+" ") != 1 {
		t.Fatalf("%s is not what the tests will find in\n%s", k.mnt, b)
	}
	logs := filepath.Join(t.TempDir(), "logs")
	args := []string{"-m", "sh", "-c", kernelScript, "sh", k.dir, logs, k.mnt, k.modules}
	for _, name := range names {
		args = append(args, "test.d/"+name+".tc")
	}
	// One of the tests ends its loops by SIGHUP, which children ignore if this process does, as below nohup.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	cmd := exec.Command("unshare", args...)
	cmd.WaitDelay = 10 * time.Second // what tests leave behind has the pipe
	timer := time.AfterFunc(20*time.Minute, func() { cmd.Process.Kill() })
	out, err := cmd.CombinedOutput()
	timer.Stop()
	// Instances come behind the rest, in the same order.
	at := make(map[string]string) // by number
	files, _ := filepath.Glob(filepath.Join(logs, "*.tc-log.*"))
	for _, f := range files {
		number, name, _ := strings.Cut(filepath.Base(f), "-")
		at[number], _, _ = strings.Cut(name, ".tc-log")
	}
	byBase := make(map[string]string)
	for _, name := range names {
		byBase[filepath.Base(name)] = name
	}
	passed, all := make(map[string]int), make(map[string]int)
	for _, r := range regexp.MustCompile(`(?m)^\[(\d+)\].*\[(\w+)\]$`).FindAllStringSubmatch(string(out), -1) {
		name := byBase[at[r[1]]]
		all[name]++
		if r[2] == "PASS" {
			passed[name]++
		} else if n, err := strconv.Atoi(r[1]); err == nil && want[name] != "" {
			logged, _ := filepath.Glob(filepath.Join(logs, fmt.Sprintf("%d-*.tc-log.*", n)))
			for _, l := range logged {
				b, _ := os.ReadFile(l)
				t.Logf("%s\n%s", r[0], b[max(0, len(b)-500):])
			}
		}
	}
	if len(all) < len(names) {
		t.Fatalf("ftracetest: %v\n%s", err, out)
	}
	got := make(map[string]string)
	for name, n := range all {
		switch {
		case passed[name] < n || n == 0:
		case n > 1:
			got[name] = passesAll
		default:
			got[name] = passes
		}
	}
	return got
}
