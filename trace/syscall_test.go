package trace

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/format"
)

// sysExit makes the header of a SYS one of an end.
func sysExit(head uint64) uint64 { return head | 1<<63 }

// data is a record DATA of one argument.
func data(low uint32, arg, flags, asked, address uint64, text ...uint64) []uint64 {
	return append([]uint64{record(low, format.RecData, 2+len(text)), arg | flags<<16 | asked<<32, address}, text...)
}

// TestDecodeSyscalls has beginnings and ends of system calls, with memory and without, and signals.
func TestDecodeSyscalls(t *testing.T) {
	enter := []uint64{record(0x11, format.RecSys, 3), 257, 0xffffff9c, 0x7000}
	leave := []uint64{sysExit(record(0x12, format.RecSys, 1)), ^uint64(1)}
	const in, out = "0x11:sys(257 [0xffffff9c 0x7000] false", "0x12:ret(-2 [] false"
	for _, c := range []struct {
		name  string
		words []uint64
		want  string
	}{
		{"plain", slices.Concat(enter, leave), in + ") " + out + ")"},
		{"no arguments", []uint64{record(0x11, format.RecSys, 1), 39, entry(0x13, 1)}, "0x11:sys(39 [] false) 0x13+1"},
		{"more arguments than there are", append([]uint64{record(0x11, format.RecSys, 9)}, 1, 2, 3, 4, 5, 6, 7, 8, 9),
			"0x11:sys(1 [0x2 0x3 0x4 0x5 0x6 0x7] false)"},
		{"nothing at all", []uint64{record(0x11, format.RecSys, 0), entry(0x13, 1)}, "0x11:sys(0 [] false) 0x13+1"},
		{"memory", slices.Concat(enter, data(0x11, 1, format.DataString, 32, 0x7000, 0x646362612f, 0x9999),
			data(0x11, 2, format.DataCut, 12, 0x8000, 0x4242424242424242, 0x4343434343434343), leave),
			in + ` 1@0x7000 4/32 "/abcd" 2@0x8000 1/12 "BBBBBBBBCCCC") ` + out + ")"},
		{"memory at the end", slices.Concat(enter, leave, data(0x12, 255, format.DataUnreadable, 8, 0x7000), enter[:2]),
			in + ") " + out + ` 255@0x7000 2/8 "") 0x11:sys(257 [0x0 0x0] false)`},
		{"memory of nothing", slices.Concat(data(0x11, 1, 0, 8, 0x7000, 1), leave), "0x11:unknown(2) " + out + ")"},
		{"less memory than its header", slices.Concat(enter, []uint64{record(0x11, format.RecData, 1), 5}, leave),
			in + ") 0x11:unknown(2) " + out + ")"},
		{"memory cut", slices.Concat(enter, []uint64{opened(record(0x11, format.RecData, 2)), 0, 0}, leave),
			in + ") 0x11:cut(2) " + out + ")"},
		{"open", slices.Concat([]uint64{opened(record(0x11, format.RecSys, 2)), 1, 2}, data(0x11, 1, 0, 8, 0x7000, 1)),
			"0x11:sys(0 [] true) 0x11:unknown(2)"},
		{"end open", []uint64{opened(sysExit(record(0x12, format.RecSys, 1))), 0}, "0x12:ret(0 [] true)"},
		{"memory ends with the chunk", slices.Concat(enter, data(0x11, 1, 0, 32, 0x7000, 0x41)[:3]),
			in + ` 1@0x7000 0/32 "")`},
		{"signal", []uint64{record(0x14, format.RecSignal, 4), 11, ^uint64(0), 0x10, 0x401000},
			"0x14:signal{Number:11 Code:-1 Address:16 PC:4198400 Handler:{Image:0 ID:0} Blocked:0}"},
	} {
		for _, window := range []int{4096, 136, 8 * 17} {
			if have := decode(0x10, window, c.words...); have != c.want {
				t.Errorf("%s, window of %d:\nhave %s\nwant %s", c.name, window, have, c.want)
			}
		}
	}
}

// TestSyscallEvents: what a writer is given comes back as events, and calls around it are what they were.
func TestSyscallEvents(t *testing.T) {
	path := Data{Arg: 1, Flags: DataString, Asked: 32, Address: 0x7000, Bytes: []byte("/etc/passwd")}
	long := Data{Arg: 1, Asked: 300, Address: 0x8000, Bytes: bytes.Repeat([]byte("x"), 300)}
	dir := build(t, func(w *Writer) {
		k := w.Task(TaskID{PID: 7, TID: 7, Image: testImage})
		k.Enter(100, 1)
		k.SysEnter(101, 257, []uint64{5, 0x7000, 0}, path, long)
		k.Signal(102, Signal{Number: 11, Code: -6, Address: 8, PC: 9, Handler: FuncID{ID: 2}, Blocked: 5})
		k.Enter(103, 2)
		k.Exit(104, 2)
		k.SysExit(105, ^uint64(1), path)
		k.Exit(106, 1)
		k.SysEnter(107, 39, nil)
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
	})
	tr := open(t, dir)
	var have []string
	err := tr.Walk(WalkOptions{}, func(ev *Event) error {
		s := fmt.Sprintf("%v%d", ev.Kind, ev.Depth)
		if ev.Sys != nil {
			s += fmt.Sprintf(" %d %d %d", int64(ev.Sys.Value), ev.Sys.Args, len(ev.Sys.Data))
			for _, d := range ev.Sys.Data {
				want := path
				if d.Address == 0x8000 {
					want = long
				}
				if diff := cmp.Diff(want, d); diff != "" {
					t.Error(diff)
				}
			}
		}
		if ev.Signal != nil {
			s += fmt.Sprintf(" %d", *ev.Signal)
		}
		have = append(have, s)
		return nil
	})
	want := []string{"entry0", "entry1 257 [5 28672 0] 2", "signal2 {11 -6 8 9 {0 2} 5}", "entry2", "exit2",
		"exit1 -2 [] 1", "exit0", "entry0 39 [] 0", "unfinished0"}
	if diff := cmp.Diff(want, have); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestSyscallCalls: system calls are calls among the others, whatever leaves them.
func TestSyscallCalls(t *testing.T) {
	dir := build(t, func(w *Writer) {
		k := w.Task(TaskID{PID: 7, TID: 7, Image: testImage, Comm: "main"})
		k.SysExit(99, 0) // of the call that made the task
		k.Enter(100, 1)
		k.SysEnter(110, 0, []uint64{3})
		k.SysExit(120, 1) // a leaf
		k.SysEnter(130, 0, []uint64{4})
		k.Enter(140, 2) // a handler, which returns
		k.SysEnter(142, 39, nil)
		k.SysExit(144, 7)
		k.Exit(150, 2)
		k.SysExit(160, ^uint64(3))
		k.SysEnter(170, 0, []uint64{5})
		k.Enter(180, 2)
		k.Resync(190, 2) // which leaves both it and what it interrupted
		k.SysEnter(200, 0, []uint64{6})
		k.Exit(210, 1) // of a function around it: its end is lost
		k.SysEnter(220, 231, []uint64{0})
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
	})
	tr := open(t, dir)
	var have []string
	if err := tr.Walk(WalkOptions{}, func(ev *Event) error {
		s := fmt.Sprintf("%v%d %s", ev.Kind, ev.Depth, tr.Name(ev.Func))
		if ev.Flags&FlagLeaf != 0 && ev.Kind == Entry {
			s += fmt.Sprintf(" leaf %d", ev.Dur)
			if ev.Sys != nil {
				s += fmt.Sprintf(" = %d", int64(ev.Sys.End.Value))
			}
		}
		have = append(have, s)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{"exit0 sys_?", "entry0 f1", "entry1 sys_read leaf 10 = 1", "exit1 sys_read", "entry1 sys_read", "entry2 f2",
		"entry3 sys_getpid leaf 2 = 7", "exit3 sys_getpid", "exit2 f2", "exit1 sys_read", "entry1 sys_read", "entry2 f2",
		"unwound2 f2", "unwound1 sys_read", "unwound0 f1", "entry0 sys_read", "exit1 f1", "entry1 sys_exit_group",
		"unfinished1 sys_exit_group", "unfinished0 sys_read"}
	for i := range want { // f1 and f2 have names of their own
		want[i] = strings.NewReplacer("f1", tr.Name(FuncID{0, 1}), "f2", tr.Name(FuncID{0, 2})).Replace(want[i])
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
	rows, err := tr.Report(ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Func == SyscallFunc(0) && (r.Calls != 4 || r.Errors != 1 || r.Unwound != 1 || r.Unfinished != 1) {
			t.Errorf("read: %d calls, %d errors, %d unwound, %d unfinished", r.Calls, r.Errors, r.Unwound, r.Unfinished)
		}
		if r.Func == unknownSyscall {
			t.Error("the end of a call that was not seen is a row")
		}
	}
}
