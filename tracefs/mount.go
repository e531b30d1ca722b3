//go:build linux

package tracefs

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fentry-dev/fentry/internal/fuse"
)

// The files as nodes of a FUSE file system. What they mean is elsewhere; here is what is FUSE's.
//
// Everything bypasses the page cache: sizes are 0 as in the kernel, and each read and write comes here as it was made.
// O_TRUNC comes with the open, so that > and >> differ.

// Options are a mount's.
type Options struct {
	Name string // what it says of itself as the device in the list of mounts is "tracefs"; this is behind the dot of its type
	// Console gets the text of the buffer when a function with the command dump or cpudump is called; nil: nobody does. It
	// must not use the files, and may take as long as it wants: what there is no room for meanwhile is counted.
	Console func(text []byte)
}

// A Mounted is a tracefs that is mounted.
type Mounted struct {
	fs     *FS
	server *fuse.Server
	once   sync.Once
}

// Mount mounts a tracefs for a target on a directory. Without root that needs the program fusermount3. Nothing is recorded
// at first.
func Mount(dir string, t Target, o Options) (*Mounted, error) {
	state, err := newFS(t)
	if err != nil {
		return nil, err
	}
	state.console = newConsole(o.Console)
	server, err := fuse.Mount(dir, newTop(state.top), fuse.Options{Source: "tracefs", Name: o.Name})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	m := &Mounted{fs: state, server: server}
	go state.watch()
	if state.console != nil {
		go state.console.run()
	}
	return m, nil
}

// Wait returns when it is not mounted any more.
func (m *Mounted) Wait() {
	m.server.Wait()
	m.end()
}

// end ends what waits.
func (m *Mounted) end() { m.once.Do(func() { close(m.fs.stop) }) }

// Rest is called when nothing is recorded any more, and before the target ends. It returns when all readers of trace_pipe have
// what there is, or have not come for it for so long.
func (m *Mounted) Rest(patience time.Duration) { m.fs.rest(patience) }

// Unmount unmounts it: readers that wait get the end of the file. Files that stay open can be used until they are closed.
// It waits a second, at most, for the console to take what is there for it.
func (m *Mounted) Unmount() error {
	m.end()
	defer m.fs.console.end(time.Second)
	return m.server.Unmount()
}

// fileNode is a file.
type fileNode struct {
	in  *instance
	cpu int // of per_cpu; -1: all
	def *file
}

var _ = (fuse.File)((*fileNode)(nil))

// Mode is what it can be opened for.
func (n *fileNode) Mode() uint32 { return n.def.mode() }

// mode is what it can be opened for.
func (f *file) mode() uint32 {
	switch {
	case f.open != nil && f.name != "trace_pipe":
		return 0o640
	case f.write == nil:
		return 0o440
	case f.read == nil:
		return 0o220
	}
	return 0o640
}

// Truncate truncates the file.
func (n *fileNode) Truncate() error {
	if n.def.truncate == nil {
		return nil
	}
	n.in.fs.mu.Lock()
	defer n.in.fs.mu.Unlock()
	return n.def.truncate(n.in)
}

// Open opens the file.
func (n *fileNode) Open(flags uint32) (h fuse.Handle, stream bool, err error) {
	d := n.def
	if readable(flags) && d.read == nil && d.open == nil || writable(flags) && d.write == nil && d.open == nil {
		return nil, false, syscall.EACCES
	}
	if truncates(flags) {
		if err := n.Truncate(); err != nil {
			return nil, false, err
		}
	}
	if d.open != nil {
		switch h := d.open(n.in, n.cpu, flags).(type) {
		case *pipe:
			return &pipeHandle{fuseHandle{h: h}, h}, true, nil
		default:
			return &fuseHandle{h: h}, false, nil
		}
	}
	t := &textHandle{in: n.in}
	if d.read != nil {
		t.make = func() ([]byte, error) { return d.read(n.in) }
	}
	if d.write != nil {
		t.take = func(s string, by writer) error { return d.write(n.in, strings.TrimSuffix(s, "\n"), by) }
	}
	return &fuseHandle{h: t}, false, nil
}

// fuseHandle is an open file.
type fuseHandle struct {
	mu sync.Mutex
	h  handle
}

var _ = (fuse.Handle)((*fuseHandle)(nil))

func (f *fuseHandle) Read(ctx context.Context, off int64, size int, flags uint32) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.h.read(ctx, off, size, flags&syscall.O_NONBLOCK == 0)
}

func (f *fuseHandle) Write(b []byte, pid int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.h.write(b, writer{pid: pid})
}

func (f *fuseHandle) Flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.h.flush()
}

func (f *fuseHandle) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.h.close()
}

// pipeHandle is trace_pipe, open. It can be polled while it is read.
type pipeHandle struct {
	fuseHandle
	pipe *pipe
}

var _ = (fuse.Poller)((*pipeHandle)(nil))

func (f *pipeHandle) Poll(wake func()) uint32 { return f.pipe.poll(wake) }

// commOf is the name of a process's first thread, "<...>" if it is not known, as the kernel shows it.
func commOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "<...>"
	}
	return strings.TrimSuffix(string(b), "\n")
}
