//go:build linux

package tracefs

import (
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/syscalls"
	"github.com/fentry-dev/fentry/trace"
)

// filtered is a call of openat(-100, "/etc/passwd", 0x80000).
func filtered(e *events) (*event, *happened) {
	ev := &trace.Event{
		Kind: trace.Entry, Func: trace.SyscallFunc(257), Comm: "ls", Task: &trace.Task{PID: 4, TID: 7},
		Sys: &trace.Syscall{Value: 257, Args: []uint64{0xffffffffffffff9c, 0x1000, 0x80000}},
	}
	h := &happened{ev: ev, cpu: 3, args: [6]int64{-100, 0x1000, 0x80000}, made: func() *syscalls.Made {
		return &syscalls.Made{In: syscalls.Memory{{Address: 0x1000, Bytes: []byte("/etc/passwd\x00"), NUL: true}}}
	}}
	which := e.find(systemSyscalls, "sys_enter_openat")
	h.id = e.all[which[0]].id
	return &e.all[which[0]], h
}

// TestEventFilter: what filters of events mean, and what is none.
func TestEventFilter(t *testing.T) {
	e, h := filtered(newEvents(syscalls.AMD64))
	for text, want := range map[string]bool{
		"common_pid == 7": true, "common_pid==8": false, "common_pid != 8": true, "!common_pid == 7": false, "!!common_pid == 7": true,
		"common_pid == 8 || cpu == 3": true, "common_pid == 7 && CPU != 3": false,
		"common_pid == 8 && cpu == 3 || comm == ls": false, "common_pid == 8 && cpu == 3 || comm == 'ls'": true,
		"common_pid == 8 && (cpu == 3 || comm == 'ls')": false, "!(common_pid == 8 && cpu == 3)": true,
		"flags & 0x80000": true, "flags & 0x7ffff": false, "flags >= 524288": true, "flags > 524288": false, "flags < 01": false,
		"flags == 02000000": true, "common_pid == 0X7": true, "common_pid == 07": true, "dfd > 0": true, "dfd < 0": false, "dfd == 0xffffffffffffff9c": true, "common_pid > -1": true,
		"COMM ~ \"l*\"": true, "comm ~ '*x*'": false, "comm != 'ls'": false,
		"filename.ustring == \"/etc/passwd\"": true, "filename.ustring ~ '/etc/*'": true, "filename.ustring != '/etc/passwd'": false,
		"filename == 0x1000": true, "__syscall_nr == 257": true, "mode == 0": true,
	} {
		f, err := newFilter(e, text)
		if strings.Contains(text, "== ls") {
			if err == nil || err.why != whyValue {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if err != nil || f.keep(h) != want {
			t.Errorf("%q: not %v, %v", text, want, err)
		}
	}
	for text, want := range map[string]string{
		"": whyNone, "  ": whyNone, "common_pid": whyOp, "common_pid = 7": whyOp, "common_pid ==": whyValue, "== 7": whyMeaning,
		"nosuch == 7": whyField, "common_pid == 'x'": whyDigit, "common_pid ~ 'x'": whyFieldOp, "comm & 'x'": whyFieldOp,
		"comm == 'x": whyQuote, "comm == x": whyValue, "(common_pid == 7": whyOpen, "common_pid == 7)": whyClose,
		"common_pid == 7 common_pid == 7": whyOp, "common_pid == 7x": whyNumber, "common_pid == -": whyNumber,
		"comm == '" + strings.Repeat("x", 300) + "'": whyLong, strings.Repeat("(", 300): whyPredicates, strings.Repeat("x", 5000): whyLong,
		strings.Repeat("cpu == 3||", 300) + "cpu == 3": whyPredicates, "flags.ustring == 'x'": whyFieldOp,
		"common_pid == 99999999999999999999": whyNumber, "common_pid == 08": whyNumber, "common_pid == 0b111": whyNumber,
		"common_pid == 0xffffffffffffffff": whyNumber, "dfd == -100": whyNumber, "common_pid == 7_0": whyOp, "dfd == _": whyValue,
		"common_pid == 000000000000000000000007": whyLong, "common_pid == --7": whyNumber,
	} {
		if f, err := newFilter(e, text); err == nil || err.why != want || f.keep != nil || !strings.HasSuffix(f.text, "^\nparse_error: "+want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
	for _, base := range []string{
		"common_pid == 1", "common_pid == 1 || common_pid == 2", "common_pid == 1 && common_pid == 2",
		"!(common_pid == 1 || common_pid == 2)",
	} {
		for _, tail := range []string{"&&", "||", "&& !", "|| !", "&& !! ", "|| !! "} {
			if _, err := newFilter(e, base+" "+tail); err == nil {
				t.Errorf("%s %s", base, tail)
			}
		}
	}
}

// FuzzEventFilter: whatever is written to a filter, it is understood or refused, and then judges an event.
func FuzzEventFilter(f *testing.F) {
	for _, text := range []string{"common_pid == 7 && !(cpu < 3 || comm ~ 'l?*')", "filename.ustring != \"x\"", "((", "flags&0x1"} {
		f.Add(text)
	}
	e, h := filtered(newEvents(syscalls.AMD64))
	f.Fuzz(func(t *testing.T, text string) {
		got, err := newFilter(e, text)
		if (err == nil) != (got.keep != nil) {
			t.Fatalf("%v", err)
		}
		if err != nil {
			if err.at < 0 || err.at > len(text) {
				t.Fatalf("%d of %d", err.at, len(text))
			}
			return
		}
		turned, err := newFilter(e, "!("+text+")")
		if err == nil && turned.keep(h) == got.keep(h) {
			t.Errorf("%q and the contrary", text)
		}
	})
}
