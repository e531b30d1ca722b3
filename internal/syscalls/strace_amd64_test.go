package syscalls_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/syscalls"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestStrace compares the text of system calls with strace's, line by line, for a program that makes each call with
// known arguments. The calls are captured by what Captures says, through ptrace: so what a recorder would not have read
// is not shown here either.
func TestStrace(t *testing.T) {
	testtool.Need(t, "strace", "gcc")
	prog := filepath.Join(t.TempDir(), "calls")
	if out, err := exec.Command("gcc", "-O1", "-w", "-o", prog, "testdata/calls.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out := filepath.Join(t.TempDir(), "strace.out")
	cmd := exec.Command("strace", "-v", "-o", out, prog)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "TZ=UTC")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("strace: %v\n%s", err, b)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "+++") {
			want = append(want, line)
		}
	}
	want = between(t, want)
	have := between(t, traced(t, prog))
	same := 0
	for i := range max(len(have), len(want)) {
		var h, w string
		if i < len(have) {
			h = normal(have[i])
		}
		if i < len(want) {
			w = normal(want[i])
		}
		if h == w {
			same++
			continue
		}
		t.Errorf("line %d\nhave %s\nwant %s", i+1, h, w)
	}
	t.Logf("%d of %d lines are strace's", same, len(want))
}

// between returns the lines between the program's two marks.
func between(t *testing.T, lines []string) []string {
	t.Helper()
	begin, end := -1, -1
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, `write(-1, "begin"`):
			begin = i + 1
		case strings.HasPrefix(line, `write(-1, "end"`):
			end = i
		}
	}
	if begin < 0 || end < begin {
		t.Fatalf("no marks among %d lines", len(lines))
	}
	return lines[begin:end]
}

// unequal is what differs from run to run: addresses, times, inodes, process ids.
var unequal = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`0x[0-9a-f]{8,}`), "ADDR"},
	{regexp.MustCompile(` /\* \d{4}-\d\d-\d\dT[^*]* \*/`), ""},
	{regexp.MustCompile(`(st_ino|stx_ino|f_bfree|f_bavail|f_ffree|f_blocks|f_files|stx_mnt_id)=\w+`), "$1=N"},
	{regexp.MustCompile(`([ac]time|mtime|st_[amc]time_nsec|st_[amc]time)=\d+`), "$1=N"},
	{regexp.MustCompile(`tv_sec=1[7-9]\d{8}, tv_nsec=\d+`), "tv_sec=N"},
	{regexp.MustCompile(`tv_sec=0, tv_nsec=\d+`), "tv_sec=0, tv_nsec=N"},
	{regexp.MustCompile(`makedev\(0x[0-9a-f]+, 0x[0-9a-f]+\)`), "makedev(N)"},
	{regexp.MustCompile(`((?:get[pst]*p?id|getpgrp|getsid|getpgid|set_tid_address|clone|fork|wait4)\(.*\)) += \d\d+$`), "$1 = PID"},
	{regexp.MustCompile(`(si_pid=|pid=|kill\(|wait4\(|tgkill\()\d\d+`), "${1}PID"},
	{regexp.MustCompile(`getrandom\("(?:[^"\\]|\\.)*"`), "getrandom(BYTES"},
	{regexp.MustCompile(`getcwd\(".*"`), "getcwd(DIR"},
	{regexp.MustCompile(`(getcwd.*) = \d+`), "$1 = N"},
	{regexp.MustCompile(`(shmget.*) = \d+`), "$1 = N"},
	{regexp.MustCompile(`shmctl\(\d+,`), "shmctl(N,"},
	{regexp.MustCompile(`\) +=`), ") ="},
	{regexp.MustCompile(`SNDCTL_TMR_START or TCSETS`), "TCSETS"}, // strace knows sound cards
}

func normal(s string) string {
	for _, u := range unequal {
		s = u.re.ReplaceAllString(s, u.to)
	}
	return s
}

// traced runs a program and returns its system calls, one a line.
func traced(t *testing.T, prog string) (lines []string) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(prog)
	cmd.Dir = t.TempDir()
	cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		t.Skipf("ptrace: %v", err)
	}
	pid := cmd.Process.Pid
	var st unix.WaitStatus
	if _, err := unix.Wait4(pid, &st, 0, nil); err != nil {
		t.Fatal(err)
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open("/proc/" + itoa(pid) + "/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	var call *syscalls.Made
	for sig := 0; ; {
		if err := unix.PtraceSyscall(pid, sig); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Wait4(pid, &st, unix.WALL, nil); err != nil {
			t.Fatal(err)
		}
		if !st.Stopped() {
			return lines
		}
		if sig = int(st.StopSignal()); sig != int(unix.SIGTRAP)|0x80 {
			continue
		}
		sig = 0
		var r unix.PtraceRegs
		if err := unix.PtraceGetRegs(pid, &r); err != nil {
			t.Fatal(err)
		}
		if call == nil {
			call = &syscalls.Made{Number: r.Orig_rax, Args: [6]uint64{r.Rdi, r.Rsi, r.Rdx, r.R10, r.R8, r.R9}}
			call.In = capture(mem, call, false)
			continue
		}
		call.Result, call.Ended = r.Rax, true
		call.Out = capture(mem, call, true)
		lines = append(lines, syscalls.Line(call))
		call = nil
	}
}

func itoa(n int) string {
	var b bytes.Buffer
	for _, d := range []int{1e6, 1e5, 1e4, 1e3, 100, 10, 1} {
		if n >= d {
			b.WriteByte('0' + byte(n/d%10))
		}
	}
	return b.String()
}
