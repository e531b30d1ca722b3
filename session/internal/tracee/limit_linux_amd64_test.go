package tracee

import (
	"debug/elf"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// callsInside is a program whose thread does nothing but short system calls in a piece of code until a word is set, and then
// waits elsewhere.
const callsInside = `
#include <sys/prctl.h>
#include <unistd.h>
int leave;
void inside(void);
extern char inside_end[];
__asm__(".text\n"
	".globl inside\n"
	"inside:	mov $39, %eax\n" /* getpid */
	"	syscall\n"
	"	cmpl $0, leave(%rip)\n"
	"	je inside\n"
	"	ret\n"
	".globl inside_end\n"
	"inside_end:\n");
int main(void)
{
	prctl(PR_SET_NAME, "ready");
	inside();
	for (;;)
		pause();
}`

// A thread that is stopped at the end of a short system call does not wait in the tracer: it comes out as soon as it can. One in a
// call that takes long does.
func TestVacate(t *testing.T) {
	program := testtool.Compile(t, "program", callsInside, "-no-pie")
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	at := make(map[string]uint64)
	for _, s := range symbols {
		at[s.Name] = s.Value
	}
	cmd, _, _ := started(t, program)
	testtool.AwaitReady(t, cmd.Process.Pid)
	r := &Runtime{Images: []RuntimeImage{{code: at["inside"], codeSize: at["inside_end"] - at["inside"]}}}
	const minute = time.Minute
	called, left, deadline := false, false, time.Now().Add(2*minute)
	stopped := func(ts *threads) error {
		ms, err := ts.maps()
		if err != nil {
			return err
		}
		regs := ts.all[0].regs
		called = r.inside(regs.pc()) && int64(regs.Orig_rax) >= 0
		if !called {
			return nil // it is about to call, or not there yet
		}
		if err := ts.memory().WriteAt([]byte{1}, at["leave"]); err != nil {
			return err
		}
		_, err = r.vacate(ts, ms, time.Now().Add(minute))
		left = err == nil && !r.inside(ts.all[0].regs.pc())
		return err
	}
	in := func(do func(*threads) error) {
		t.Helper()
		ts, err := openThreads(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		defer ts.close()
		err = ts.within(false, func() error { return do(ts) })
		if errors.Is(err, unix.EPERM) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for !called {
		if in(stopped); time.Now().After(deadline) {
			t.Fatal("it is never stopped behind a system call")
		}
	}
	if !left {
		t.Error("it is still there")
	}
	for waits := false; !waits; {
		in(func(ts *threads) error {
			regs := ts.all[0].regs
			if waits = regs.again(); !waits {
				return nil
			}
			ms, err := ts.maps()
			if err != nil {
				return err
			}
			there := &Runtime{Images: []RuntimeImage{{code: regs.pc(), codeSize: 1}}}
			if _, err := there.vacate(ts, ms, time.Now().Add(minute)); !errors.Is(err, ErrInside) {
				t.Errorf("where it waits: %v", err)
			}
			return nil
		})
		if time.Now().After(deadline.Add(minute)) {
			t.Fatal("it does not wait")
		}
	}
}

// A process that says it has many images, and has much on its stacks, is not looked at without an end.
func TestPatience(t *testing.T) {
	ts, ms := opened(t, startedCat(t))
	r := &Runtime{}
	for i := range uint64(mostImages) {
		r.Images = append(r.Images, RuntimeImage{code: 1<<40 - i<<20, codeSize: PageSize})
	}
	r.Images = append(r.Images, RuntimeImage{code: ^uint64(100), codeSize: ^uint64(0)})
	for _, tt := range []struct {
		at uint64
		is bool
	}{
		{0, false}, {100, false}, {1<<40 - 1, false}, {1 << 40, true}, {1<<40 + PageSize - 1, true}, {1<<40 + PageSize, false},
		{1<<40 - (mostImages-1)<<20, true}, {1<<40 - mostImages<<20, false}, {^uint64(101), false}, {^uint64(50), true},
	} {
		if is := r.inside(tt.at); is != tt.is {
			t.Errorf("%#x is inside: %v", tt.at, is)
		}
	}
	for _, held := range []time.Duration{0, mostHeld} {
		err := ts.within(false, func() error {
			ts.held = held
			_, err := r.vacate(ts, ms, time.Now().Add(time.Minute))
			return err
		})
		if errors.Is(err, unix.EPERM) {
			t.Skip(err)
		}
		if long := held == mostHeld; long != errors.Is(err, errHeld) || !long && err != nil {
			t.Errorf("held for %v: %v", held, err)
		}
	}
	if ts.held <= mostHeld {
		t.Errorf("stops are not counted: %v", ts.held)
	}
}
