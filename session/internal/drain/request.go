//go:build linux

package drain

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/pool"
)

// Answers of a [Server].
const (
	Done        = format.AnswerDone
	Unsupported = format.AnswerUnsupported
	Failed      = format.AnswerFailed
	Later       = format.AnswerLater
)

// Request is what a program asks of the recorder, copied from the pool before it is
// looked at. All of it is the program's word.
type Request struct {
	Kind     uint32
	PID      int
	NS       uint64 // the PID namespace that PID is of; 0: not known
	Argument uint64 // what handle leaves here goes back with the answer

	server *Server
	word   uint32 // the slot's while it holds this request
}

// Answer gives the answer at once, from any goroutine, and not when handle returns, whose own then counts for nothing. What is in
// Argument goes with it.
func (r *Request) Answer(answer uint32) {
	if r.server != nil {
		r.server.give(r, answer)
	}
}

// Server answers the requests of traced programs. It runs in a goroutine of its own.
//
// The slot is in memory that every traced process can write, so the server relies on
// nothing but that its own compare-and-swap of the slot's word succeeds or fails. Each
// request has a number in that word, so an answer that comes too late is not taken for
// one to the next request. It never waits for a program: a slot that does not move is made
// free, and keeps the number.
type Server struct {
	p      *pool.Pool
	handle func(*Request) (answer uint32)
	stop   atomic.Bool
}

// NewServer returns a server that answers what handle says. handle must not take long:
// the program waits for it, three seconds at most.
func NewServer(p *pool.Pool, handle func(*Request) uint32) *Server {
	return &Server{p: p, handle: handle}
}

// stuck is how long a program may take for its part before the slot is made free: longer than a thread waits for a
// processor on a busy machine, as it gets no answer then. look is how often that is looked at.
const (
	stuck = time.Second
	look  = 100 * time.Millisecond
)

// Run answers requests until Stop.
func (s *Server) Run() {
	word := s.p.Word(format.HRequest)
	var last uint32
	var since time.Time // when last was seen first
	for !s.stop.Load() {
		w := word.Load()
		if w&format.RequestMask == format.RequestAsked {
			s.answer(word, w)
			continue
		}
		if w != last {
			last, since = w, time.Now()
		} else if w&format.RequestMask != format.RequestFree && time.Since(since) >= stuck {
			s.move(word, w, w&^format.RequestMask|format.RequestFree)
			continue
		}
		pool.FutexWait(word, w, int64(look))
	}
	s.stop.Store(false)
}

// answer answers the request that the slot holds.
func (s *Server) answer(word *atomic.Uint32, w uint32) {
	r := Request{
		Kind:     s.p.Word(format.HRequestKind).Load(),
		PID:      int(s.p.Word(format.HRequestPID).Load()),
		NS:       s.p.Word64(format.HRequestNs).Load(),
		Argument: s.p.Word64(format.HRequestArgument).Load(),
		server:   s,
		word:     w,
	}
	if word.Load() != w {
		return // it was given up while it was copied
	}
	s.give(&r, s.handle(&r))
}

// give gives an answer, unless the slot holds the request no more: it was answered, or given up, and what is there now is
// another one.
func (s *Server) give(r *Request, answer uint32) {
	word := s.p.Word(format.HRequest)
	if word.Load() != r.word {
		return
	}
	s.p.Word(format.HRequestAnswer).Store(answer)
	s.p.Word64(format.HRequestArgument).Store(r.Argument)
	s.move(word, r.word, r.word&^format.RequestMask|format.RequestAnswered)
}

// move changes the slot's word, if it is still what it was, and wakes who waits.
func (s *Server) move(word *atomic.Uint32, from, to uint32) {
	if word.CompareAndSwap(from, to) {
		pool.FutexWake(word, math.MaxInt32)
	}
}

// Stop tells Run to return soon.
func (s *Server) Stop() {
	s.stop.Store(true)
	pool.FutexWake(s.p.Word(format.HRequest), math.MaxInt32)
}
