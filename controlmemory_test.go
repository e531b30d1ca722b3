//go:build linux

package fentry_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session"
)

// Where a program has no memory for what is asked for, that is refused, and all goes on as before: what was done at calls
// is done, as often as it was to be.
func TestControlMemory(t *testing.T) {
	for name, attached := range map[string]bool{"started": false, "attached": true} {
		t.Run(name, func(t *testing.T) {
			c := startControlled(t, attached, fentry.Options{Buffer: 32 << 20}, "-fpatchable-function-entry=5")
			c.control("trigger = leaf@stacktrace:5")
			c.do("thread 1")
			first := c.addressSpace()
			refused, made := map[string]int{}, false
			const piece = 64 << 10
			for more := uint64(0); !made && more < 64<<20; more += piece {
				_, err := c.limited(more, "trigger += work@time>1s,stacktrace; set_graph_function = work")
				var wrong *session.ControlError
				switch {
				case err == nil:
					made = true
				case !errors.As(err, &wrong) || !strings.Contains(wrong.Why, unix.ENOMEM.Error()):
					t.Errorf("%d bytes: %v", more, err)
				default:
					refused[wrong.Why]++
					// What it had before it was told to do so again can be there, too; and while that is tried, more.
					most := first + 2*uint64(os.Getpagesize())
					waitFor(t, fmt.Sprintf("address space of %d bytes again (%d bytes: %v)", most, more, err), func() int {
						if c.addressSpace() > most {
							return 0
						}
						return 1
					})
				}
				c.do("work 1")
				c.do("thread 1")
			}
			const says = "leaf@stacktrace:5 work@time>1s,stacktrace"
			if got := c.control("trigger"); got != says || len(refused) < 2 || !made {
				t.Errorf("triggers %q, want %q; refused: %v", got, says, refused)
			}
			t.Log(refused)
			c.calls()
		})
	}
}

// limited sends a line to the recorder while the program can have so many bytes of address space more.
func (c *controlled) limited(more uint64, line string) (answer string, err error) {
	c.t.Helper()
	var was unix.Rlimit
	lim := unix.Rlimit{Cur: c.addressSpace() + more, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(c.pid, unix.RLIMIT_AS, &lim, &was); err != nil {
		c.t.Fatal(err)
	}
	answer, err = c.ask(line)
	if err := unix.Prlimit(c.pid, unix.RLIMIT_AS, &was, nil); err != nil {
		c.t.Fatal(err)
	}
	return answer, err
}

// addressSpace is how many bytes of that the program has.
func (c *controlled) addressSpace() (size uint64) {
	c.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", c.pid))
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(b), &size); err != nil {
		c.t.Fatal(err)
	}
	return size * uint64(os.Getpagesize())
}

// What a program says of itself where whoever controls its recorder looks is its word alone: memory of the recorder does not
// grow with it, and it goes on being controlled when it tells the truth again.
func TestControlForged(t *testing.T) {
	c := startControlled(t, false, fentry.Options{Buffer: 8 << 20}, "-fpatchable-function-entry=5")
	c.control("trigger = leaf@stacktrace:1")
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", c.pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	le := binary.LittleEndian
	word := func(at uint64) uint64 {
		var b [8]byte
		if _, err := mem.ReadAt(b[:], int64(at)); err != nil {
			t.Fatal(err)
		}
		return le.Uint64(b[:])
	}
	const meeting = 0x1f0000
	state := word(word(meeting + format.MeetingOImages))
	field := func(o uint64) func() uint64 { return func() uint64 { return state + o } }
	acting := func() uint64 { return word(state + format.StateOActing) }
	for name, forged := range map[string]struct {
		at    func() uint64
		value uint64
	}{
		"functions": {field(format.StateOSites), 1 << 26},
		"actions":   {func() uint64 { return acting() + format.ActingOCount }, 1<<32 - 1},
		"function":  {func() uint64 { return word(acting() + format.ActingOActions) }, 1<<32 - 1}, // of the table that is there now
		"next":      {field(format.StateONext), state},
	} {
		at := forged.at()
		was := word(at)
		forge := func(v uint64) {
			if _, err := mem.WriteAt(le.AppendUint64(nil, v)[:4], int64(at)); err != nil {
				t.Fatal(err)
			}
		}
		forge(forged.value)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := c.ask("trigger = work@stacktrace:1; set_graph_function = work")
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 512<<20 {
			t.Errorf("%s: the recorder allocates %d bytes", name, n)
		}
		if err == nil {
			t.Errorf("%s: nothing is wrong", name)
		}
		forge(was)
		c.control("trigger = leaf@stacktrace:1; set_graph_function =")
		c.do("work 1")
	}
	c.calls()
}
