package formats

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/sample"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/trace"
)

// TestUftraceGraph: in uftrace's graph of calls, each function has as many calls as in a report.
func TestUftraceGraph(t *testing.T) {
	testtool.Need(t, "uftrace")
	tr := sample.Random(t, rand.New(rand.NewPCG(5, 5)), 4000)
	want, _ := reported(t, tr)
	got := map[string]int64{}
	for _, m := range regexp.MustCompile(`(?m)\((\d+)\) (\w+)$`).FindAllStringSubmatch(
		output(t, "uftrace", "graph", "-d", exported(t, tr, "uftrace")), -1) {
		n, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		got[m[2]] += n
	}
	delete(got, "prog") // the root
	calls := map[string]int64{}
	for name, s := range want {
		calls[name] = s.Calls
	}
	if diff := cmp.Diff(calls, got); diff != "" {
		t.Errorf("-report +uftrace graph:\n%s", diff)
	}
}

// TestUftraceReplay: the calls that uftrace prints one by one, as they are nested, add up to a report's calls and times,
// to the digits that it prints.
func TestUftraceReplay(t *testing.T) {
	testtool.Need(t, "uftrace")
	tr := sample.Random(t, rand.New(rand.NewPCG(5, 5)), 4000)
	want, _ := reported(t, tr)
	line := regexp.MustCompile(`(?m)^ *(?:([0-9.]+) (us|ms) )?\[ *(\d+)\] \| +(?:(\w+)\((?:\);|\) \{)|\} /\* (\w+) \*/)$`)
	type open struct{ inside, unsure int64 }
	stacks, got, unsure := map[string][]open{}, map[string]sums{}, map[string]int64{}
	for _, m := range line.FindAllStringSubmatch(output(t, "uftrace", "replay", "--no-pager", "-d", exported(t, tr, "uftrace")), -1) {
		st := stacks[m[3]]
		if strings.HasSuffix(m[0], "{") {
			stacks[m[3]] = append(st, open{})
			continue
		}
		var c open
		name := m[4]
		if name == "" {
			name, c, st = m[5], st[len(st)-1], st[:len(st)-1]
		}
		n, err := strconv.ParseInt("0"+strings.Replace(m[1], ".", "", 1), 10, 64) // three decimals, nothing for 0
		if err != nil {
			t.Fatal(err)
		}
		digit := int64(1)
		if m[2] == "ms" {
			digit = 1000
		}
		got[name] = sums{got[name].Calls + 1, got[name].Self + n*digit - c.inside}
		unsure[name] += digit - 1 + c.unsure
		if len(st) > 0 {
			st[len(st)-1].inside += n * digit
			st[len(st)-1].unsure += digit - 1
		}
		stacks[m[3]] = st
	}
	for name, w := range want {
		if g := got[name]; g.Calls != w.Calls || g.Self < w.Self-unsure[name] || g.Self > w.Self+unsure[name] {
			t.Errorf("%s: replay shows %d calls, %d ns, a report %d and %d", name, g.Calls, g.Self, w.Calls, w.Self)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d functions, want %d", len(got), len(want))
	}
}

// TestUftraceTUI: uftrace's page for terminals shows of each function the calls and times of a report.
func TestUftraceTUI(t *testing.T) {
	testtool.Need(t, "uftrace")
	tr := sample.Random(t, rand.New(rand.NewPCG(5, 5)), 4000)
	rows, err := tr.Report(trace.ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, r := range rows {
		want[r.Name] = fmt.Sprintf("%d %.3f %.3f", r.Calls, float64(r.Total/1000)/1000, float64(r.Self/1000)/1000)
	}
	term := newTerminal(t, exec.Command("uftrace", "tui", "-d", exported(t, tr, "uftrace")))
	term.wait("FUNCTION")
	term.write("R") // the page of its report
	term.wait("uftrace report:")
	var got map[string]string
	term.until(fmt.Sprintf("%d functions", len(want)), func(text string) bool { // they are drawn below their head
		got = map[string]string{}
		for _, m := range regexp.MustCompile(`([0-9.]+) ms\s+([0-9.]+) ms\s+(\d+)\s+(\w+)`).FindAllStringSubmatch(text, -1) {
			got[m[4]] = m[3] + " " + m[1] + " " + m[2]
		}
		return cmp.Equal(want, got)
	})
	term.write("q")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-report +uftrace tui:\n%s\n%s", diff, term.text())
	}
	term.end()
}

// A terminal is what a program draws on that wants one.
type terminal struct {
	t    *testing.T
	file *os.File
	cmd  *exec.Cmd
	seen chan []byte
	all  []byte
}

func newTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	file, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("needs a pseudo terminal: ", err)
	}
	if err := unix.IoctlSetPointerInt(int(file.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(file.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(file.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 60, Col: 160}); err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.Env = append(os.Environ(), "TERM=xterm", "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, file: file, cmd: cmd, seen: make(chan []byte)}
	go func() {
		defer close(term.seen)
		for {
			b := make([]byte, 4096)
			n, err := file.Read(b)
			if n > 0 {
				term.seen <- b[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	return term
}

// controls are what moves the cursor and sets colours.
var controls = regexp.MustCompile("\x1b\\[[0-9;?]*([A-Za-z])|\x1b[(=>].?")

// text is what was drawn, in order, with spaces where the cursor moved.
func (m *terminal) text() string {
	return controls.ReplaceAllStringFunc(string(m.all), func(s string) string {
		if strings.ContainsAny(s[len(s)-1:], "HdCX") {
			return " "
		}
		return ""
	})
}

// wait waits until a text has been drawn.
func (m *terminal) wait(text string) {
	m.t.Helper()
	m.until(strconv.Quote(text), func(all string) bool { return strings.Contains(all, text) })
}

// until waits until what has been drawn is enough.
func (m *terminal) until(what string, enough func(text string) bool) {
	m.t.Helper()
	limit := time.After(testtool.Patience)
	for !enough(m.text()) {
		select {
		case b, ok := <-m.seen:
			if !ok {
				m.t.Fatalf("it has ended before it shows %s:\n%s", what, m.text())
			}
			m.all = append(m.all, b...)
		case <-limit:
			m.cmd.Process.Kill()
			m.t.Fatalf("it does not show %s, but:\n%s", what, m.text())
		}
	}
}

func (m *terminal) write(keys string) {
	m.t.Helper()
	if _, err := m.file.WriteString(keys); err != nil {
		m.t.Fatal(err)
	}
}

// end waits for the end of the program, which has been asked for it.
func (m *terminal) end() {
	m.t.Helper()
	kill := time.AfterFunc(testtool.Patience, func() { m.cmd.Process.Kill() })
	for range m.seen {
	}
	if err := m.cmd.Wait(); err != nil {
		m.t.Error(err)
	}
	kill.Stop()
	m.file.Close()
}
