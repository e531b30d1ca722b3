package trace

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/format"
)

// stacksOf are the stacks of a trace, a line each.
func stacksOf(t *testing.T, write func(k *TaskWriter)) []string {
	t.Helper()
	tr := capturedTrace(t, write)
	var out []string
	err := tr.Walk(WalkOptions{}, func(ev *Event) error {
		if ev.Kind != Stacktrace {
			return nil
		}
		line := fmt.Sprintf("%d %d:", ev.Func.ID, ev.Depth)
		for _, f := range ev.Backtrace.Frames {
			line += " " + strings.Join(tr.FrameLabels(f), "+")
		}
		out = append(out, line+" "+ev.Backtrace.End)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestBacktraces: numbers of frames mean what was said last, in the same chunk.
func TestBacktraces(t *testing.T) {
	const moved = 1 << 63
	got := stacksOf(t, func(k *TaskWriter) {
		k.Mapped(10, MappedFile{Address: 0x1000, Size: 0x1000, Bias: 0x800, Path: "/no/such\x1bfile"})
		k.Frames(10, 1, 0, 0x1100, 0x1200, 0x2001)
		k.Enter(10, 3)
		k.Backtrace(10, 3, format.EndOutermost, 3)
		k.Backtrace(11, 2, format.EndDepth, 4)
		k.Frames(12, 4, 2, moved|5)
		k.Backtrace(12, 4, format.EndUndefined|3<<4, 3)
		k.Frames(13, 1, 0, 0x1900) // another meaning
		k.Backtrace(13, 4, format.EndNoTable, 3)
		k.Backtrace(14, 9, format.EndBadCfa, 3)
		k.Backtrace(15, 0, 15, 3)
		k.Exit(16, 3)
	})
	want := []string{
		`3 1: 0x2001 such?file+0xa00 such?file+0x900 outermost`,
		`4 1: such?file+0xa00 such?file+0x900 depth`,
		`3 1: a:#5 such?file+0xa00 such?file+0x900 undefined:r3`,
		`3 1: a:#5 such?file+0xa00 such?file+0x1100 no-table`,
		`3 1: lost`, `3 1: unknown`,
	}
	if len(got) != len(want) {
		t.Fatalf("%d stacks: %q", len(got), got)
	}
	for i := range want {
		if strings.ReplaceAll(got[i], "  ", " ") != want[i] {
			t.Errorf("%d: %q, want %q", i, got[i], want[i])
		}
	}
	// Another chunk does not know what was said in this one.
	got = stacksOf(t, func(k *TaskWriter) {
		k.Frames(10, 1, 0, 0x1100)
		k.Flush()
		k.Backtrace(11, 1, format.EndOutermost, 3)
	})
	if len(got) != 1 || !strings.HasSuffix(got[0], " lost") {
		t.Errorf("in another chunk: %q", got)
	}
	// A cycle of parents ends.
	got = stacksOf(t, func(k *TaskWriter) {
		k.Frames(10, 1, 2, 0x1100, 0x1200)
		k.Backtrace(11, 1, format.EndOutermost, 3)
	})
	if len(got) != 1 || !strings.HasSuffix(got[0], " lost") {
		t.Errorf("a cycle: %q", got)
	}
}

// TestSamples: a stack on a timer belongs to no call, and begins where the thread was.
func TestSamples(t *testing.T) {
	tr := capturedTrace(t, func(k *TaskWriter) {
		k.Mapped(10, MappedFile{Address: 0x1000, Size: 0x1000, Bias: 0x800, Path: "/no/such"})
		k.Enter(10, 3)
		k.Frames(11, 1, 0, 0x1100, 0x1000|format.ExactPc)
		k.Sample(11, 2, format.EndGone, format.StackPartial)
		k.record(30, format.RecBacktrace, 1|uint64(format.EndOutermost)<<32|format.StackDeferred<<40, format.StackOnTimer|15)
		k.Sample(31, 0, format.EndOutermost, format.StackEntry)
		k.Exit(32, 3)
	})
	var got []string
	err := tr.Walk(WalkOptions{}, func(ev *Event) error {
		if b := ev.Backtrace; ev.Kind == Stacktrace {
			got = append(got, fmt.Sprintf("%d %v %s %s %d %v", ev.Func.ID, b.Timer, b.Mode, b.End, b.Delay, tr.StackLabels(ev)))
		}
		return nil
	})
	want := []string{
		"0 true partial gone 0 [such+0x800 such+0x900]", // the first instruction is no end of a call before it
		fmt.Sprintf("0 true deferred outermost %d [such+0x900]", tr.Clock.Time(30)-tr.Clock.Time(15)),
		"0 true entry outermost 0 [?]",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n%q\n%q", err, got, want)
	}
}
