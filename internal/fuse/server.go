//go:build linux

package fuse

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
)

// A Server is a file system that is mounted.
type Server struct {
	device   io.ReadWriteCloser
	on       string // the directory on which it is mounted
	uid, gid uint32 // whom files belong to
	tables

	runningMu sync.Mutex
	running   map[uint64]context.CancelFunc // by the id of a request
	requests  sync.WaitGroup
	done      chan struct{}
}

func newServer(device io.ReadWriteCloser, root Dir, uid, gid int) *Server {
	s := &Server{
		device: device, uid: uint32(uid), gid: uint32(gid),
		running: make(map[uint64]context.CancelFunc), done: make(chan struct{}),
	}
	s.begin(root)
	return s
}

// Wait returns when it is not mounted any more, and all that it was asked is done.
func (s *Server) Wait() { <-s.done }

// serve answers requests until it is not mounted any more. If the device fails otherwise, it is closed, and users get
// an error instead of waiting.
func (s *Server) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	buf := make([]byte, mostRequest)
	for {
		n, err := s.device.Read(buf)
		switch {
		case err == nil:
			s.take(ctx, buf[:n])
			continue
		case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.EINTR): // who asked is gone
			continue
		}
		break // ENODEV: it is not mounted
	}
	cancel()
	s.requests.Wait()
	_ = s.device.Close()
	close(s.done)
}

// take takes a request, and starts what answers it. What concerns other requests is done at once: the kernel says it
// after them.
func (s *Server) take(ctx context.Context, b []byte) {
	r, err := parse(b)
	switch {
	case r == nil:
		return // there is nobody to answer
	case err != nil:
		if r.op != opForget && r.op != opBatchForget && r.op != opInterrupt {
			s.answer(r, nil, err)
		}
		return
	}
	switch r.op {
	case opForget:
		s.forget(r.node, r.body.u64(0))
	case opBatchForget:
		const size = 16
		all := r.body[8:]
		for range min(int64(r.body.u32(0)), int64(len(all)/size)) {
			s.forget(all.u64(0), all.u64(8))
			all = all[size:]
		}
	case opInterrupt:
		s.interrupt(r.body.u64(0))
	case opInit:
		out, err := start(r)
		s.answer(r, out, err)
	default:
		r.body = append(message(nil), r.body...) // the buffer is for the next one
		ctx, cancel := context.WithCancel(ctx)
		s.runningMu.Lock()
		s.running[r.unique] = cancel
		s.runningMu.Unlock()
		s.requests.Go(func() {
			out, err := s.do(ctx, r)
			s.runningMu.Lock()
			delete(s.running, r.unique)
			s.runningMu.Unlock()
			cancel()
			s.answer(r, out, err)
		})
	}
}

// interrupt ends a request's context, if it is not done.
func (s *Server) interrupt(unique uint64) {
	s.runningMu.Lock()
	defer s.runningMu.Unlock()
	if cancel := s.running[unique]; cancel != nil {
		cancel()
	}
}

// answer replies. If that fails, nobody waits for it any more.
func (s *Server) answer(r *request, out reply, err error) {
	_, _ = s.device.Write(out.finish(r.unique, errno(err)))
}

// start agrees with the kernel on a version and on what both can do.
func start(r *request) (reply, error) {
	theirs := r.body.u32(4)
	switch v := r.body.u32(0); {
	case v > major: // it asks again, with this one
		return newReply(64).u32(major).u32(minor).zeros(56), nil
	case v < major || theirs < minorMin:
		return nil, syscall.EPROTO
	}
	flags := r.body.u32(12) & (initAtomicTrunc | initBigWrites | initParallelDir)
	out := newReply(64).u32(major).u32(min(theirs, minor)).u32(r.body.u32(8)).u32(flags)
	out = out.u16(0).u16(0) // requests that nobody waits for: the kernel's limits
	out = out.u32(mostData) // of a write
	out = out.u32(1)        // nanoseconds: of times
	return out.zeros(36), nil
}
