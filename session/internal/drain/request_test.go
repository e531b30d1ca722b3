//go:build linux

package drain

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/pool"
	"github.com/fentry-dev/fentry/trace"
)

// newServer returns a running server of a small pool.
func newServer(t testing.TB, handle func(*Request) uint32) (*Server, *pool.Pool) {
	t.Helper()
	p, err := pool.New(0, trace.PolicyBlock, clock.Reading{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(p, handle)
	var run sync.WaitGroup
	run.Go(s.Run)
	t.Cleanup(func() {
		s.Stop()
		run.Wait()
		p.Close()
	})
	return s, p
}

// until waits for the slot's word to have one of some values.
func until(t *testing.T, p *pool.Pool, want ...uint32) {
	t.Helper()
	word := p.Word(format.HRequest)
	for deadline := time.Now().Add(time.Minute); !slices.Contains(want, word.Load()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the slot is %#x, not %#x", word.Load(), want)
		}
	}
}

// untilAnswered waits for the answer to a request, which stays when nobody takes it for a while.
func untilAnswered(t *testing.T, p *pool.Pool, number uint32) {
	t.Helper()
	until(t, p, number<<format.RequestShift|format.RequestAnswered, number<<format.RequestShift|format.RequestFree)
}

// post puts a request into the slot, as a program does.
func post(p *pool.Pool, number, kind, pid uint32, argument uint64) {
	p.Word(format.HRequestKind).Store(kind)
	p.Word(format.HRequestPID).Store(pid)
	p.Word64(format.HRequestArgument).Store(argument)
	word := p.Word(format.HRequest)
	word.Store(number<<format.RequestShift | format.RequestAsked)
	pool.FutexWake(word, 1)
}

func TestServer(t *testing.T) {
	got := make(chan Request, 1)
	_, p := newServer(t, func(r *Request) uint32 {
		got <- *r
		r.Argument = 1<<50 | 9
		return Done
	})
	post(p, 77, 5, 1234, 1<<40)
	untilAnswered(t, p, 77)
	if r := <-got; r.Kind != 5 || r.PID != 1234 || r.NS != 0 || r.Argument != 1<<40 || p.Word(format.HRequestAnswer).Load() != Done {
		t.Errorf("%+v, answer %d", r, p.Word(format.HRequestAnswer).Load())
	}
	if v := p.Word64(format.HRequestArgument).Load(); v != 1<<50|9 {
		t.Errorf("%#x goes back with the answer", v)
	}
	// Who has asked was killed before it took the answer.
	until(t, p, 77<<format.RequestShift|format.RequestFree)
	// Another one was killed while it wrote its request.
	word := p.Word(format.HRequest)
	word.Store(78<<format.RequestShift | format.RequestTaken)
	pool.FutexWake(word, 1)
	until(t, p, 78<<format.RequestShift|format.RequestFree)
}

// An answer that is given at once is the only one.
func TestServerAtOnce(t *testing.T) {
	hold := make(chan bool)
	_, p := newServer(t, func(r *Request) uint32 {
		if r.Kind != 1 {
			return Done
		}
		r.Argument = 9
		go r.Answer(Done)
		<-hold
		return Failed
	})
	post(p, 77, 1, 1, 0)
	until(t, p, 77<<format.RequestShift|format.RequestAnswered)
	if a, v := p.Word(format.HRequestAnswer).Load(), p.Word64(format.HRequestArgument).Load(); a != Done || v != 9 {
		t.Errorf("answer %d, %d", a, v)
	}
	p.Word(format.HRequest).Store(77<<format.RequestShift | format.RequestFree)
	hold <- true
	post(p, 78, 2, 2, 0)
	untilAnswered(t, p, 78)
	if a := p.Word(format.HRequestAnswer).Load(); a != Done {
		t.Errorf("answer %d", a)
	}
}

// An answer that comes too late does not go to the next one that asks.
func TestServerLate(t *testing.T) {
	asked, hold := make(chan bool), make(chan bool)
	_, p := newServer(t, func(r *Request) uint32 {
		if r.Kind == 1 {
			asked <- true
			<-hold
			return Failed
		}
		return Done
	})
	post(p, 77, 1, 1, 0)
	<-asked
	post(p, 78, 2, 2, 0)
	hold <- true
	untilAnswered(t, p, 78)
	if a := p.Word(format.HRequestAnswer).Load(); a != Done {
		t.Errorf("answer %d", a)
	}
}

// FuzzRequest: whatever is in the slot, the server answers what asks for it, frees the
// slot again, and stops when it is told to.
func FuzzRequest(f *testing.F) {
	f.Add(uint32(77<<2|2), uint32(1), uint32(1), uint64(1))
	f.Add(uint32(0xffffffff), uint32(9), uint32(1<<31), ^uint64(0))
	f.Add(uint32(1), uint32(0), uint32(0), uint64(0))
	p, err := pool.New(0, trace.PolicyBlock, clock.Reading{}, 1)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(p.Close)
	f.Fuzz(func(t *testing.T, w, kind, pid uint32, argument uint64) {
		calls := 0
		s := NewServer(p, func(r *Request) uint32 {
			calls++
			if r.Kind != kind || r.PID != int(pid) || r.Argument != argument {
				t.Errorf("%+v", r)
			}
			return Unsupported
		})
		p.Word(format.HRequestKind).Store(kind)
		p.Word(format.HRequestPID).Store(pid)
		p.Word64(format.HRequestArgument).Store(argument)
		word := p.Word(format.HRequest)
		word.Store(w)
		var run sync.WaitGroup
		run.Go(s.Run)
		asked := w&format.RequestMask == format.RequestAsked
		for deadline := time.Now().Add(time.Minute); asked && word.Load() == w; time.Sleep(100 * time.Microsecond) {
			if time.Now().After(deadline) {
				t.Fatal("no answer")
			}
		}
		s.Stop()
		run.Wait()
		if asked != (calls == 1) || calls > 1 {
			t.Errorf("%#x: %d calls", w, calls)
		}
	})
}
