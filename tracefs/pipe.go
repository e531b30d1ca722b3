//go:build linux

package tracefs

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/fentry-dev/fentry/internal/fuse"
	"github.com/fentry-dev/fentry/trace"
)

// pipe is trace_pipe, open: what it returns is not returned again, to nobody, nor is it in trace any more. What it has is
// guarded by FS.mu.
type pipe struct {
	in      *instance
	cpu     int
	text    []byte // taken, and not returned yet
	most    int    // events to be taken at once
	ended   bool
	nothing uint64 // FS.news when there was nothing to be taken
	wake    func() // tells whoever polls; nil: nobody does
}

// How many events are taken at once: few at first, so that trace keeps what a reader does not come for, and more and more
// as long as there are, because each time takes a copy of the buffer.
const (
	pipeFirst = 512
	pipeMost  = 64 << 10
)

func openPipe(in *instance, cpu int, _ uint32) handle {
	p := &pipe{in: in, cpu: cpu, most: pipeFirst}
	in.fs.mu.Lock()
	defer in.fs.mu.Unlock()
	in.fs.pipes[p] = true
	return p
}

// read waits until there is something.
func (p *pipe) read(ctx context.Context, _ int64, size int, wait bool) ([]byte, error) {
	for {
		began := time.Now()
		b, err := p.take(size)
		if len(b) > 0 || err != nil || p.ended {
			return b, err
		}
		if !wait {
			return nil, syscall.EAGAIN
		}
		select {
		case <-ctx.Done():
			return nil, syscall.EINTR
		case <-p.in.fs.stop:
			return nil, nil
		case <-time.After(max(tick, tickPart*time.Since(began))):
		}
	}
}

// take returns what there is.
func (p *pipe) take(size int) ([]byte, error) {
	p.in.fs.mu.Lock()
	defer p.in.fs.mu.Unlock()
	p.in.fs.taken++
	if len(p.text) == 0 {
		if err := p.fill(); err != nil || p.ended {
			return nil, err
		}
		if p.ended = len(p.text) == 0 && p.in.fs.last; p.ended {
			return nil, nil
		}
	}
	if len(p.text) == 0 && p.wake != nil { // they were told that there was something, or will be
		p.in.fs.polled[p] = true
	}
	n := min(size, len(p.text))
	b := p.text[:n]
	p.text = p.text[n:]
	return b, nil
}

// fill takes what there is from the buffer.
func (p *pipe) fill() error {
	fs := p.in.fs
	if p.ended = p.in.gone; p.ended {
		return nil
	}
	news := fs.hear()
	if news == p.nothing {
		return nil
	}
	t, err := fs.open()
	if errors.Is(err, ErrOver) {
		p.ended = true
		return nil
	}
	if err != nil {
		return err
	}
	defer t.Close()
	var n int
	p.text, n, err = p.in.text(t, p.cpu, p.most, true)
	if p.most = min(2*p.most, pipeMost); n < p.most/2 {
		p.most = pipeFirst
	}
	if err == nil && len(p.text) == 0 {
		p.nothing = news
	}
	return err
}

// poll tells whether read would wait.
func (p *pipe) poll(wake func()) uint32 {
	fs := p.in.fs
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if wake != nil {
		p.wake = wake
	}
	news := fs.hear()
	ready := p.ready(news, fs.open)
	if ready == 0 && wake != nil {
		fs.polled[p] = true
	}
	return ready
}

// ready is what can be done; 0: read would wait. news is FS.news before the copy of the buffer that open returns.
func (p *pipe) ready(news uint64, open func() (*trace.Trace, error)) uint32 {
	select {
	case <-p.in.fs.stop:
		return fuse.Readable | fuse.Ended
	default:
	}
	switch {
	case len(p.text) > 0:
		return fuse.Readable
	case p.in.gone || p.in.fs.last:
		return fuse.Readable | fuse.Ended
	case news == p.nothing:
		return 0
	}
	t, err := open()
	if errors.Is(err, ErrOver) {
		return fuse.Readable | fuse.Ended
	}
	some := false
	if err == nil {
		some, err = p.in.any(t, p.cpu)
		err = errors.Join(err, t.Close())
	}
	switch {
	case err != nil:
		return fuse.Readable | fuse.Failed // a read says why
	case some:
		return fuse.Readable
	}
	p.nothing = news
	return 0
}

// any tells whether there is anything in the buffer that text would write.
func (in *instance) any(t *trace.Trace, cpu int) (found bool, err error) {
	v := view{in: in, t: t, cpu: cpu}
	err = v.walk(func(*trace.Event, string) error {
		found = true
		return errEnough
	})
	return found, err
}

func (p *pipe) write([]byte, writer) error { return syscall.EINVAL }
func (p *pipe) flush() error               { return nil }

func (p *pipe) close() {
	p.in.fs.mu.Lock()
	defer p.in.fs.mu.Unlock()
	delete(p.in.fs.polled, p)
	delete(p.in.fs.pipes, p)
}

// rest lets readers take what there is, when nothing comes any more, as long as they come for it. Whoever has all gets the end of
// the file.
func (fs *FS) rest(patience time.Duration) {
	seen, since := uint64(0), time.Now()
	for {
		fs.mu.Lock()
		fs.last = true
		open := false
		for p := range fs.pipes {
			open = open || !p.ended
		}
		taken, wake := fs.taken, fs.tell()
		fs.mu.Unlock()
		for _, wake := range wake {
			wake()
		}
		if taken != seen {
			seen, since = taken, time.Now()
		}
		if !open || time.Since(since) > patience {
			return
		}
		select {
		case <-fs.stop: // it is not mounted any more
			return
		case <-time.After(tick / 10):
		}
	}
}

// hear returns a number that is another one if there may be something to show that was not there before.
func (fs *FS) hear() uint64 {
	if fs.target.Moved() {
		fs.news++
	}
	return fs.news
}

// tell returns what tells those who poll that there is something. The caller has the lock, and calls them without it.
func (fs *FS) tell() (wake []func()) {
	if len(fs.polled) == 0 {
		return nil
	}
	news := fs.hear()
	for p := range fs.polled {
		if p.ready(news, fs.open) != 0 {
			wake = append(wake, p.wake)
			p.wake = nil
			delete(fs.polled, p)
		}
	}
	return wake
}
