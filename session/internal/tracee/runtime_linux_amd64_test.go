package tracee

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// A fakeRuntime is memory of a process that waits, with an image in it as a runtime describes it.
type fakeRuntime struct {
	*Runtime
	base uint64
}

// Distances in it.
const (
	fakeArmed, fakeSilent, fakeSwitched   = 0, 8, 16
	fakeState, fakeInfo, fakeWords, fakes = 64, 512, 1024, 2048 // fakes: the switches

	fakeSites = 1000
)

// newFakeRuntime has a process with an image that can be unloaded, or cannot.
func newFakeRuntime(t *testing.T, leaves uint32) *fakeRuntime {
	t.Helper()
	ts, ms := opened(t, startedCat(t))
	f := &fakeRuntime{Runtime: newRuntime(ts.memory(), ts.aux)}
	for _, m := range ms {
		if m.path == "[stack]" { // its end nobody uses
			f.base = m.lo
		}
	}
	b := make([]byte, fakes+fakeSites)
	le.PutUint32(b[fakeArmed:], format.ArmedOn)
	state := b[fakeState:]
	le.PutUint64(state[format.StateOID:], 7)
	le.PutUint32(state[format.StateOSites:], fakeSites)
	le.PutUint32(state[format.StateOStage:], format.StageHere)
	le.PutUint64(state[format.StateOWords:], f.base+fakeWords)
	le.PutUint64(state[format.StateOSwitches:], f.base+fakes)
	le.PutUint64(state[format.StateOAt:], f.base+fakeInfo)
	le.PutUint32(b[fakeInfo+format.ImageOStages:], leaves)
	copy(b[fakes:], bytes.Repeat([]byte{format.SwitchOn}, fakeSites))
	if err := f.t.WriteAt(b, f.base); err != nil {
		t.Fatal(err)
	}
	for o, at := range map[int]uint64{
		format.MeetingOArmed: fakeArmed, format.MeetingOSilent: fakeSilent, format.MeetingOSwitched: fakeSwitched,
	} {
		le.PutUint64(f.page[o:], f.base+at)
	}
	var err error
	if f.next(f.base+fakeState, &err); err != nil || len(f.Images) != 1 {
		t.Fatalf("%d images, %v", len(f.Images), err)
	}
	return f
}

// states are those of its threads.
func (f *fakeRuntime) states(t *testing.T) string {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", f.t.pid))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, task := range tasks {
		s, err := procfs.ReadStat(fmt.Sprintf("/proc/%d/task/%s/stat", f.t.pid, task.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(s.State))
	}
	return strings.Join(all, "")
}

// The switches of a library that can be unloaded are written while no thread of the process can do that; for others nobody is
// stopped. What has gone meanwhile is not written to, and where nothing is to be changed nobody is stopped either.
func TestSwitchLeaving(t *testing.T) {
	for leaves, name := range []string{"stays", "leaves"} {
		t.Run(name, func(t *testing.T) {
			f := newFakeRuntime(t, uint32(leaves))
			const stopped = "t" // by a tracer
			writes := 0
			f.put = func(b []byte, addr uint64) error {
				if got := f.states(t); (got == stopped) != (leaves == 1) {
					t.Errorf("written while its threads are %s", got)
				}
				writes++
				return f.t.WriteAt(b, addr)
			}
			odd := Switching{Leave: true, On: func(uint64) (func(uint32) bool, error) {
				return func(id uint32) bool { return id%2 == 1 }, nil
			}}
			want := bytes.Repeat([]byte{format.SwitchOn, format.SwitchFiltered}, fakeSites/2)
			for range 2 { // there is nothing to be done the second time
				if err := f.Switch(odd); err != nil {
					t.Fatal(err)
				}
			}
			got := make([]byte, fakeSites)
			if err := f.t.ReadAt(got, f.base+fakes); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v, %x", err, got)
			}
			if writes != 2 { // the switches, and whether system calls are recorded
				t.Errorf("%d writes", writes)
			}
			if leaves == 0 {
				return
			}
			all := Switching{Leave: true, On: func(uint64) (func(uint32) bool, error) {
				gone := le.AppendUint32(nil, format.StageGoes)
				return nil, f.t.WriteAt(gone, f.base+fakeState+format.StateOStage)
			}}
			if err := f.Switch(all); err != nil || writes != 2 {
				t.Errorf("%d writes, %v", writes, err)
			}
		})
	}
}

// Children that were forked while all functions of a process were off, for a change, have theirs on again, and so have their
// children; what was switched off before stays off.
func TestReopen(t *testing.T) {
	cmd, _, out := started(t, "sh", "-c", "sh -c 'sleep 1000; :' & echo $!; exec sleep 1000")
	var child int
	if _, err := fmt.Fscan(out, &child); err != nil {
		t.Fatal(err)
	}
	var grandchild int
	for deadline := time.Now().Add(time.Minute); grandchild == 0; time.Sleep(time.Millisecond) {
		if all := children(child); len(all) == 1 {
			grandchild = all[0]
		} else if time.Now().After(deadline) {
			t.Fatalf("%d has children %v", child, all)
		}
	}
	defer syscall.Kill(child, syscall.SIGKILL)
	defer syscall.Kill(grandchild, syscall.SIGKILL)
	f, g := newFakeRuntime(t, 0), newFakeRuntime(t, 0)
	want := bytes.Repeat([]byte{format.SwitchOn, format.SwitchFiltered}, fakeSites/2)
	for _, r := range []*fakeRuntime{f, g} {
		if err := r.t.WriteAt(want, r.base+fakes); err != nil {
			t.Fatal(err)
		}
		if err := r.shut(true); err != nil {
			t.Fatal(err)
		}
	}
	reopen(cmd.Process.Pid, func(pid int) (*Runtime, error) {
		switch pid {
		case child:
			return reopened(t, f), nil
		case grandchild:
			return reopened(t, g), nil
		}
		return nil, ErrNoRuntime
	})
	for name, r := range map[string]*fakeRuntime{"child": f, "grandchild": g} {
		got := make([]byte, fakeSites)
		if err := r.t.ReadAt(got, r.base+fakes); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v, %x", name, err, got)
		}
	}
}

// reopened is a runtime as somebody else has opened it.
func reopened(t *testing.T, f *fakeRuntime) *Runtime {
	t.Helper()
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", f.t.pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := newRuntime(&Process{pid: f.t.pid, mem: mem}, nil)
	r.page, r.Images = f.page, slices.Clone(f.Images)
	return r
}
