//go:build linux

package tracefs_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// kernelTests are the kernel's own tests of ftrace that must pass, as Debian's linux-source-6.1 has them, and whether they
// run below instances, too. docs/tracefs.md says of all what becomes of them.
var kernelTests = map[string]bool{
	"00basic/basic1": false, "00basic/basic2": true, "00basic/basic3": true, "00basic/ringbuffer_size": true,
	"00basic/snapshot": true, "00basic/trace_pipe": true,
	"ftrace/fgraph-filter": false, "ftrace/func-filter-glob": false, "ftrace/func-filter-stacktrace": true,
	"ftrace/func-filter-notrace-pid": true,
	"ftrace/func_set_ftrace_file":    false,
	"instances/instance":             false,
}

// TestKernel runs them, unmodified, where the kernel's own tracefs is not mounted.
func TestKernel(t *testing.T) {
	if !testtool.Wide() {
		t.Skip("139 MB are downloaded; FENTRY_WIDE=1 runs it")
	}
	if os.Geteuid() != 0 {
		t.Skip("mount namespaces are made by root")
	}
	testtool.Need(t, "apt-get", "dpkg-deb", "tar", "unshare")
	m := mount(t)
	dir := kernelSource(t)
	logs, names := t.TempDir(), slices.Sorted(maps.Keys(kernelTests))
	rt := filepath.Join(logs, "rt")
	if err := os.WriteFile(rt, []byte("950000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := `set -e
mount --make-rprivate /
for d in $(awk '($3 == "tracefs" || $3 == "debugfs") {print $2}' /proc/mounts); do umount -l "$d"; done
mount --bind ` + rt + ` /proc/sys/kernel/sched_rt_runtime_us
cd "$1"; logs=$2; shift 2
exec ./ftracetest -k -l "$logs" "$@"`
	args := []string{"-m", "sh", "-c", script, "sh", dir, filepath.Join(logs, "logs")}
	for _, name := range names {
		args = append(args, "test.d/"+name+".tc")
	}
	cmd := exec.Command("unshare", args...)
	timer := time.AfterFunc(10*time.Minute, func() { cmd.Process.Kill() })
	out, err := cmd.CombinedOutput()
	timer.Stop()
	t.Logf("%v\n%s", err, out)
	passed := strings.Count(string(out), "[PASS]")
	want := len(names)
	for _, instance := range kernelTests {
		if instance {
			want++
		}
	}
	if passed != want || m.read("current_tracer") != "nop\n" {
		for _, f := range regexp.MustCompile(`\[(\d+)\].*\[(FAIL|UN\w+)\]`).FindAllStringSubmatch(string(out), -1) {
			logs, _ := filepath.Glob(filepath.Join(logs, "logs", f[1]+"-*"))
			for _, l := range logs {
				b, _ := os.ReadFile(l)
				t.Logf("%s\n%s", f[0], b)
			}
		}
		t.Errorf("%d of %d passed", passed, want)
	}
}

// kernelSource returns the directory of the kernel's tests of ftrace.
func kernelSource(t *testing.T) string {
	t.Helper()
	tmp := t.TempDir()
	run := func(command string) {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = tmp
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("linux-source-6.1 cannot be had: %s: %v: %s", command, err, out)
		}
	}
	run("apt-get -q download linux-source-6.1")
	const within = "linux-source-6.1/tools/testing/selftests/ftrace"
	run(fmt.Sprintf("dpkg-deb --fsys-tarfile *.deb | tar -xO ./usr/src/linux-source-6.1.tar.xz | tar -xJ %s", within))
	return filepath.Join(tmp, within)
}
