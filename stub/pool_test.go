package stub

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// pool is shared memory as a recorder makes it, and a recorder of the simplest kind.
type pool struct {
	mem    []byte
	fd     int
	n      int
	chunks [][]byte // drained
}

const chunkSize = 65536

// Where the header has the events lost by tasks without a chunk, and the counter's frequency.
const (
	lostEvents = 104
	counterHz  = 96
)

func newPool(t *testing.T, n int, policy uint32) *pool {
	t.Helper()
	return newSealedPool(t, n, policy, unix.F_SEAL_SHRINK)
}

func newSealedPool(t *testing.T, n int, policy uint32, seals int) *pool {
	t.Helper()
	fd, err := unix.MemfdCreate("fentry-pool", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Skip("memfd_create: ", err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	size := 4096 + n*chunkSize
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	le := binary.LittleEndian
	copy(mem, "FENTRYT1")
	le.PutUint32(mem[8:], 2)
	le.PutUint32(mem[12:], 4096)
	le.PutUint32(mem[16:], chunkSize)
	le.PutUint32(mem[20:], uint32(n))
	le.PutUint32(mem[24:], policy)
	le.PutUint32(mem[28:], uint32(os.Getpid()))
	return &pool{mem: mem, fd: fd, n: n}
}

func (p *pool) word(off int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&p.mem[off])) }

func (p *pool) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.fd) }

// drain takes the chunks in state from.
func (p *pool) drain(from uint32) int {
	n := 0
	for i := range p.n {
		if !p.word(256+4*i).CompareAndSwap(from, 3) {
			continue
		}
		b := p.mem[4096+i*chunkSize:][:chunkSize]
		if binary.LittleEndian.Uint32(b) != 0 {
			p.chunks = append(p.chunks, slices.Clone(b))
		}
		clear(b)
		p.word(256 + 4*i).Store(0)
		n++
	}
	if n > 0 {
		p.word(40).Add(1)
		unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(p.word(40))), 1, 1<<30, 0, 0, 0)
	}
	return n
}

// gaveUp says whether the task that owns a chunk has given up events: it counts them there.
func (p *pool) gaveUp() bool {
	for i := range p.n {
		if (*atomic.Uint64)(unsafe.Pointer(&p.mem[4096+i*chunkSize+format.CLost])).Load() != 0 {
			return true
		}
	}
	return false
}

// events decodes what was drained.
func (p *pool) events(t *testing.T, f *fixture) *events {
	t.Helper()
	b := append([]byte(nil), p.mem[:4096]...)
	binary.LittleEndian.PutUint32(b[20:], 0)
	binary.LittleEndian.PutUint64(b[32:], uint64(len(p.chunks)))
	for _, c := range p.chunks {
		b = append(b, c...)
	}
	ev, err := decode(b, f.sites)
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// kept counts the entries and exits in what was drained, which may have gaps.
func (p *pool) kept() int {
	n := 0
	for _, c := range p.chunks {
		if binary.LittleEndian.Uint16(c[format.CKind:]) != format.KindEvents {
			continue
		}
		for w := format.Contents(c[format.ChunkHeader:]); len(w) > 0; w = w[8:] {
			if r, ok := format.ParseRecord(uint32(binary.LittleEndian.Uint64(w) >> 32)); ok {
				w = w[8*r.Words:]
			} else if binary.LittleEndian.Uint64(w) != 0 {
				n++
			}
		}
	}
	return n
}

// runWith runs the fixture and calls each repeatedly until it has ended.
func (p *pool) runWith(t *testing.T, f *fixture, each func(), args ...string) (out, errs string) {
	t.Helper()
	cmd := f.command(t, args...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	timeout := time.After(testtool.Patience)
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("%v\n%s%s", err, o.String(), e.String())
			}
			if _, err := os.Stat(cmd.Dir + "/fentry.data"); err == nil {
				t.Error("the program has started a trace of its own")
			}
			return o.String(), e.String()
		case <-timeout:
			cmd.Process.Kill()
			t.Fatalf("the program hangs\n%s%s", o.String(), e.String())
		default:
			each()
		}
	}
}

// recorded is how many entries and exits there are in a trace.
func (ev *events) recorded() int {
	n := 0
	for _, c := range []map[string]int{ev.calls, ev.exits} {
		for _, k := range c {
			n += k
		}
	}
	return n
}

// made is how many events a run of the fixture made, by its own count.
func made(t *testing.T, out string) int {
	t.Helper()
	calls := 0
	for line := range strings.Lines(out) {
		var name string
		var n int
		if c, _ := fmt.Sscanf(line, "%s %d", &name, &n); c == 2 {
			calls += n
		}
	}
	if calls == 0 {
		t.Fatalf("no counts in output %q", out)
	}
	return 2 * calls
}

func TestPool(t *testing.T) {
	forEach(t, testPool)
}

// testSnapshots: chunks that a flight recorder claims for a snapshot and gives back are the thread's to use again: it
// has as many afterwards, all of them its newest.
func testSnapshots(t *testing.T, build func(t *testing.T, p *pool) *fixture) {
	const n, overwrite, full, writing = 32, 2, 2, 3
	p := newPool(t, n, overwrite)
	f := build(t, p)
	end := filepath.Join(t.TempDir(), "end")
	filled := func() uint32 { return p.word(format.HFilled).Load() }
	var claimed []int
	rounds, next := 6, uint32(2*n)
	p.runWith(t, f, func() {
		p.word(format.HHeartbeat).Add(1)
		time.Sleep(time.Millisecond)
		switch {
		case filled() < next:
		case claimed == nil && rounds == 0:
			os.WriteFile(end, nil, 0o666)
		case claimed == nil:
			for i := range n * 3 / 4 {
				if p.word(format.StatesOff+4*i).CompareAndSwap(full, writing) {
					claimed = append(claimed, i)
				}
			}
			next = filled() + n // the thread comes past those that it cannot have
		default:
			for _, i := range claimed {
				p.word(format.StatesOff + 4*i).Store(full)
			}
			claimed, next = nil, filled()+3*n
			rounds--
		}
	}, "until", end)
	p.drain(2)
	p.drain(1)
	var numbers []uint32
	for _, c := range p.chunks {
		if binary.LittleEndian.Uint16(c[format.CKind:]) == format.KindEvents {
			numbers = append(numbers, binary.LittleEndian.Uint32(c[format.CNumber:]))
		}
	}
	slices.Sort(numbers)
	others := len(p.chunks) - len(numbers)
	if len(numbers)+others != n || others > 4 {
		t.Fatalf("%d chunks of events and %d others, of %d", len(numbers), others, n)
	}
	if first, last := numbers[0], numbers[len(numbers)-1]; last-first != uint32(len(numbers)-1) {
		t.Errorf("there is a gap in %d", numbers)
	}
}

// TestSwitchedOff: a process no longer records a function that the recorder has switched off, in any chunk that begins
// afterwards; calls that are open end, other functions have all their calls, and a list that lies elsewhere is no list.
func TestSwitchedOff(t *testing.T) {
	const list, room = 2048, 16
	forEach(t, func(t *testing.T, m *machine) {
		for _, at := range []uint32{list, 4096, list + 4} {
			t.Run(fmt.Sprint(at), func(t *testing.T) {
				p := newPool(t, 16, 0)
				p.word(format.HSwitchedOff).Store(at)
				p.word(format.HSwitchedOffRoom).Store(room)
				f := buildFixture(t, "survive.c", buildOptions{on: m, config: Config{Session: p.path()}})
				nest := uint32(slices.Index(f.sites, "nest") + 1)
				told := 0 // chunks drained until then, and what a task may have had besides
				out, errs := p.runWith(t, f, func() {
					p.word(48).Add(1)
					n := p.drain(2)
					if told == 0 && len(p.chunks) >= 4 {
						p.word(list).Store(1 << 30) // nobody's
						p.word(list + 4).Store(nest)
						p.word(format.HSwitchedOffCount).Store(1 << 20)
						told = len(p.chunks) + p.n
					}
					if n == 0 {
						time.Sleep(time.Millisecond)
					}
				}, "many", "100000")
				p.drain(2)
				p.drain(1)
				ev := p.events(t, f)
				if ev.open != 0 || ev.strays != 0 || ev.lost != 0 || errs != "" {
					t.Errorf("%d calls left open, %d exits without entry, %d lost, %q", ev.open, ev.strays, ev.lost, errs)
				}
				if ev.calls["leaf"] != 100000 {
					t.Errorf("%d calls of leaf", ev.calls["leaf"])
				}
				if at != list {
					expectCounts(t, out, ev)
					return
				}
				if n := ev.calls["nest"]; n == 0 || n > (told+1)*chunkSize/16 || told == 0 {
					t.Errorf("%d calls of nest, in %d chunks", n, told)
				}
			})
		}
	})
}

// othersFaster has all chunks be other tasks' and, if they are moving, freed again and again, until the program gets one. It
// returns for how long at most none was freed when the program has given up, which is then no wonder.
func othersFaster(t *testing.T, build func(t *testing.T, p *pool) *fixture, moving bool) (late time.Duration) {
	t.Helper()
	const block, free, owned = 0, 0, 1
	p := newPool(t, 8, block)
	f := build(t, p)
	for i := range p.n {
		p.word(256 + 4*i).Store(owned)
	}
	start, given := time.Now(), false
	last := start
	out, errs := p.runWith(t, f, func() {
		p.word(48).Add(1)
		if moving && !given {
			p.word(40).Add(1)
			late, last = max(late, time.Since(last)), time.Now()
		}
		if moving && !given && time.Since(start) > 2*time.Second {
			for i := range p.n {
				p.word(256 + 4*i).Store(free)
			}
			given = true
		}
		if given {
			p.drain(2)
		}
		time.Sleep(10 * time.Millisecond)
	}, "many", "1000")
	if moving && errs != "" {
		const soon = 30 * time.Millisecond // before the program looks again
		if late = max(late, time.Since(last)); late > soon {
			return late
		}
	}
	lost := binary.LittleEndian.Uint64(p.mem[lostEvents:])
	if moving != given || moving != (errs == "") || !moving && !strings.Contains(errs, "the recorder's buffer is full") {
		t.Errorf("moving %v: given a chunk %v, %d lost, %q", moving, given, lost, errs)
	}
	if moving {
		p.drain(2)
		p.drain(1)
		ev := p.events(t, f)
		expectCounts(t, out, ev)
		if ev.lost != 0 || lost != 0 {
			t.Errorf("%d and %d lost", ev.lost, lost)
		}
	}
	return 0
}

func testPool(t *testing.T, m *machine) {
	buildForPool := func(t *testing.T, p *pool) *fixture {
		return buildFixture(t, "survive.c", buildOptions{on: m, config: Config{Session: p.path()}})
	}
	const block, drop, overwrite = 0, 1, 2

	t.Run("block", func(t *testing.T) {
		// A pool that is far too small for what is recorded.
		p := newPool(t, 8, block)
		f := buildForPool(t, p)
		out, errs := p.runWith(t, f, func() {
			p.word(48).Add(1)
			if p.drain(2) == 0 {
				time.Sleep(time.Millisecond)
			}
		}, "many", "100000")
		p.drain(2)
		p.drain(1)
		ev := p.events(t, f)
		expectCounts(t, out, ev)
		if ev.lost != 0 || errs != "" || ev.open != 0 {
			t.Errorf("%d lost, %d open, %q", ev.lost, ev.open, errs)
		}
		if ev.recorded() != made(t, out) {
			t.Errorf("%d recorded, %d happened", ev.recorded(), made(t, out))
		}
		if len(ev.images) != 1 || ev.images[0]["nsites"] != fmt.Sprint(len(f.sites)) || ev.images[0]["path"] != f.path || ev.images[0]["mode"] != "function_graph" {
			t.Errorf("image %v", ev.images)
		}
		// A machine that knows its counter's frequency says so.
		if hz := binary.LittleEndian.Uint64(p.mem[counterHz:]); hz != 0 != (m == onARM64) || hz != 0 && (hz < 1e6 || hz > 1e10) {
			t.Errorf("the counter has %d Hz", hz)
		}
	})

	t.Run("threads", func(t *testing.T) {
		p := newPool(t, 256, block)
		f := buildForPool(t, p)
		out, errs := p.runWith(t, f, func() {
			p.word(48).Add(1)
			p.drain(2)
			time.Sleep(time.Millisecond)
		}, "threads", "64", "64")
		p.drain(2)
		p.drain(1)
		ev := p.events(t, f)
		expectCounts(t, out, ev)
		if ev.lost != 0 || errs != "" || len(ev.tasks) != 65 {
			t.Errorf("%d lost, %d tasks, %q", ev.lost, len(ev.tasks), errs)
		}
	})

	t.Run("drop", func(t *testing.T) {
		// However slow the program is: nothing is drained until it has lost something.
		p := newPool(t, 8, drop)
		f := buildForPool(t, p)
		full := false
		out, errs := p.runWith(t, f, func() {
			p.word(48).Add(1)
			time.Sleep(5 * time.Millisecond)
			if full = full || p.gaveUp(); full {
				p.drain(2)
			}
		}, "many", "300000")
		p.drain(2)
		p.drain(1)
		ev := p.events(t, f)
		if ev.lost == 0 {
			t.Errorf("nothing was lost of %d events", ev.recorded())
		}
		if want := made(t, out); ev.recorded()+int(ev.lost) != want {
			t.Errorf("%d recorded, %d lost, %d happened", ev.recorded(), ev.lost, want)
		}
		if n := p.word(format.HUncounted).Load(); n != 0 || errs != "" {
			t.Errorf("%d not counted, %q", n, errs)
		}
	})

	t.Run("overwrite", func(t *testing.T) {
		// Nobody drains; the newest events are there at the end, and what says what they
		// mean.
		p := newPool(t, 8, overwrite)
		f := buildForPool(t, p)
		out, _ := p.runWith(t, f, func() { p.word(48).Add(1); time.Sleep(5 * time.Millisecond) }, "many", "300000")
		p.drain(2)
		p.drain(1)
		over := int(binary.LittleEndian.Uint64(p.mem[format.HOverwritten:]))
		if kept := p.kept(); kept+over != made(t, out) || over == 0 {
			t.Errorf("%d kept, %d overwritten, %d happened", kept, over, made(t, out))
		}
		events, last := 0, uint32(0)
		kinds := map[uint16]int{}
		for _, c := range p.chunks {
			kinds[binary.LittleEndian.Uint16(c[4:])]++
			if binary.LittleEndian.Uint16(c[4:]) == 1 {
				last = max(last, binary.LittleEndian.Uint32(c[20:]))
				events++
			}
		}
		if events < 5 || last < 500 {
			t.Errorf("%d chunks of events, the last is number %d", events, last)
		}
		if kinds[format.KindImage] != 1 || kinds[format.KindMap] != 1 {
			t.Errorf("chunks by kind: %v", kinds)
		}
	})

	t.Run("snapshots", func(t *testing.T) { testSnapshots(t, buildForPool) })

	t.Run("recorder stops", func(t *testing.T) {
		// Once nobody has answered for some seconds, the program goes on, and what it does
		// then is lost. When the recorder is back, so is the trace.
		p := newPool(t, 8, block)
		f := buildForPool(t, p)
		end := filepath.Join(t.TempDir(), "end")
		alone, chunks := false, 0
		out, errs := p.runWith(t, f, func() {
			time.Sleep(5 * time.Millisecond)
			if alone = alone || p.gaveUp(); alone {
				p.word(48).Add(1)
				chunks += p.drain(2)
			}
			if chunks > 20 {
				os.WriteFile(end, nil, 0o666)
			}
		}, "until", end)
		p.drain(2)
		p.drain(1)
		ev := p.events(t, f)
		if want := made(t, out); ev.recorded()+int(ev.lost) != want || ev.lost == 0 {
			t.Errorf("%d recorded, %d lost, %d happened", ev.recorded(), ev.lost, want)
		}
		want := "fentry: the recorder does not answer: until it does, events are lost, and counted\n"
		if n := p.word(format.HUncounted).Load(); n != 0 || errs != want {
			t.Errorf("%d not counted, %q", n, errs)
		}
	})

	t.Run("recorder dies", func(t *testing.T) {
		p := newPool(t, 8, block)
		binary.LittleEndian.PutUint32(p.mem[format.HRecorder:], 1<<22) // more than the largest id there can be
		f := buildForPool(t, p)
		start := time.Now()
		_, errs := p.runWith(t, f, func() { time.Sleep(10 * time.Millisecond) }, "many", "300000")
		if errs != "fentry: tracing stopped: the recorder has died\n" {
			t.Errorf("after %v: %q", time.Since(start), errs)
		}
		if p.word(format.HUncounted).Load() != 1 || binary.LittleEndian.Uint64(p.mem[format.HUncountedFrom:]) == 0 {
			t.Error("the header does not say that events were lost that nobody counts")
		}
	})

	t.Run("recorder elsewhere", func(t *testing.T) {
		// In another PID namespace its id says nothing: as long as it is silent, events are lost and counted.
		p := newPool(t, 8, block)
		binary.LittleEndian.PutUint32(p.mem[format.HRecorder:], 1<<22)
		binary.LittleEndian.PutUint64(p.mem[format.HRecorderNs:], 1)
		f := buildForPool(t, p)
		out, errs := p.runWith(t, f, func() { time.Sleep(10 * time.Millisecond) }, "many", "300000")
		p.drain(2)
		p.drain(1)
		ev := p.events(t, f)
		if want := made(t, out); ev.recorded()+int(ev.lost) != want || ev.lost == 0 {
			t.Errorf("%d recorded, %d lost, %d happened", ev.recorded(), ev.lost, want)
		}
		want := "fentry: the recorder does not answer: until it does, events are lost, and counted\n"
		if n := p.word(format.HUncounted).Load(); n != 0 || errs != want {
			t.Errorf("%d not counted, %q", n, errs)
		}
	})

	t.Run("others are faster", func(t *testing.T) {
		// Whenever the program looks, all chunks are other tasks'. While the recorder frees
		// any, it waits for one; when it does not, tasks may be idle with all of them, and the
		// program goes on without being traced.
		for _, moving := range []bool{true, false} {
			for late := othersFaster(t, buildForPool, moving); late != 0; late = othersFaster(t, buildForPool, moving) {
				t.Logf("this process was not run for %v: once more", late)
			}
		}
	})

	t.Run("closed", func(t *testing.T) {
		p := newPool(t, 8, block)
		f := buildForPool(t, p)
		_, errs := p.runWith(t, f, func() {
			if p.word(44).Load() > 0 && p.word(52).Swap(1) == 0 { // a chunk is full
				p.word(40).Add(1)
				unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(p.word(40))), 1, 1<<30, 0, 0, 0)
			}
			time.Sleep(time.Millisecond)
		}, "many", "1000000")
		if errs != "" {
			t.Errorf("%q", errs)
		}
	})

	others := 0 // events of functions that the fixture does not count, as many each time
	t.Run("signals", func(t *testing.T) {
		// Handlers that fill chunks while what they interrupted holds a slot.
		p := newPool(t, 64, block)
		f := buildForPool(t, p)
		out, errs := p.runWith(t, f, func() {
			p.word(48).Add(1)
			p.drain(2)
			time.Sleep(time.Millisecond)
		}, "signals", "1")
		p.drain(2)
		p.drain(1)
		ev := p.events(t, f)
		expectCounts(t, out, ev)
		others = ev.recorded() - made(t, out)
		if ev.lost != 0 || errs != "" || others < 0 {
			t.Errorf("%d recorded, %d lost, %d happened, %q", ev.recorded(), ev.lost, made(t, out), errs)
		}
	})

	t.Run("signals, dropped", func(t *testing.T) {
		// The same where what they fill is given up again and again.
		p := newPool(t, 8, drop)
		f := buildForPool(t, p)
		full := false
		out, errs := p.runWith(t, f, func() {
			p.word(48).Add(1)
			if full = full || p.gaveUp(); full {
				p.drain(2)
				time.Sleep(400 * time.Millisecond)
			}
			time.Sleep(time.Millisecond)
		}, "signals", "1")
		p.drain(2)
		p.drain(1)
		ev := p.events(t, f)
		// A thread whose chunk ends with a slot that an interrupted writer holds has no room in
		// it. If it ends without another one, it has not counted its latest events.
		uncounted := int(p.word(format.HUncounted).Load())
		want, have := made(t, out)+others, ev.recorded()+int(ev.lost)
		if have > want || have < want-64*uncounted || uncounted > 1 || ev.lost == 0 || errs != "" {
			t.Errorf("%d recorded, %d lost, %d happened, %d not counted, %q", ev.recorded(), ev.lost, want, uncounted, errs)
		}
	})

	t.Run("ancestor", func(t *testing.T) {
		// A program patched offline finds the recorder above it, by either descriptor.
		p := newPool(t, 64, block)
		f := buildFixture(t, "survive.c", buildOptions{on: m})
		as := func(fd int) {
			t.Helper()
			if got, err := unix.FcntlInt(uintptr(p.fd), unix.F_DUPFD_CLOEXEC, fd); err != nil || got != fd {
				t.Fatalf("descriptor %d is %d: %v", fd, got, err)
			}
		}
		const low, high = 63, 1000
		as(low)
		defer unix.Close(high)
		cmd := exec.Command("sh", "-c", strings.Join(f.command(t, "calls").Args, " "))
		cmd.Dir = t.TempDir()
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		p.drain(2)
		p.drain(1)
		expectCounts(t, string(out), p.events(t, f))
		if _, err := os.Stat(cmd.Dir + "/fentry.data"); err == nil {
			t.Error("the program has started a trace of its own")
		}
		unix.Close(low)
		as(high)
		// Every request has a number of its own, whoever asks: an answer that comes too
		// late must not be taken for one to the next request.
		first := p.word(format.HRequest).Load()
		if err := exec.Command("sh", "-c", strings.Join(f.command(t, "quiet").Args, " ")).Run(); err != nil {
			t.Fatal(err)
		}
		// A program joins the recorder; on amd64 it also asks for what it executes to be followed.
		each, state := first>>format.RequestShift, first&format.RequestMask
		if w := p.word(format.HRequest).Load(); each == 0 || each > 2 || state != format.RequestFree || w != 2*first {
			t.Errorf("the slot for requests is %#x after one program, %#x after two", first, w)
		}
	})
}
