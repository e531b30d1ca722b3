//go:build linux

package tracefs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// The files as nodes of a FUSE file system. What they mean is elsewhere; here is what is FUSE's.
//
// Everything bypasses the page cache (FOPEN_DIRECT_IO): sizes are 0 as in the kernel, and each read and write comes here
// as it was made. O_TRUNC comes with the open (FUSE_ATOMIC_O_TRUNC), so that > and >> differ. Calls of FLUSH are waited
// for by close, those of RELEASE are not.

// Options are a mount's.
type Options struct {
	Name string // what it says of itself as the device in the list of mounts is "tracefs"; this is behind the dot of its type
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
	quiet := log.New(io.Discard, "", 0)
	server, err := fs.Mount(dir, &topNode{in: state.top}, &fs.Options{
		MountOptions: fuse.MountOptions{
			FsName: "tracefs", Name: o.Name, Logger: quiet, DirectMount: os.Geteuid() == 0,
			DisableXAttrs: true, ExtraCapabilities: fuse.CAP_ATOMIC_O_TRUNC, DisableReadDirPlus: true,
		},
		Logger: quiet, NullPermissions: true, UID: uint32(os.Getuid()), GID: uint32(os.Getgid()),
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	m := &Mounted{fs: state, server: server}
	go state.watch()
	return m, nil
}

// Wait returns when it is not mounted any more.
func (m *Mounted) Wait() {
	m.server.Wait()
	m.end()
}

// end ends what waits.
func (m *Mounted) end() { m.once.Do(func() { close(m.fs.stop) }) }

// Unmount unmounts it: readers that wait get the end of the file. While files are open that is not possible, and an error
// is returned.
func (m *Mounted) Unmount() error {
	m.end()
	return m.server.Unmount()
}

// errno is what the kernel is told of an error.
func errno(err error) syscall.Errno {
	var e syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e
	}
	return syscall.EIO // the recording has ended, or its copy cannot be read
}

// fileNode is a file.
type fileNode struct {
	fs.Inode
	in  *instance
	cpu int // of per_cpu; -1: all
	def *file
}

var _ = (fs.NodeOpener)((*fileNode)(nil))
var _ = (fs.NodeSetattrer)((*fileNode)(nil))
var _ = (fs.NodeGetattrer)((*fileNode)(nil))

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

func (n *fileNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode = n.def.mode()
	return 0
}

// Setattr is chmod, chown and touch, which change nothing, and truncate.
func (n *fileNode) Setattr(
	ctx context.Context, h fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut,
) syscall.Errno {
	if _, ok := in.GetSize(); ok && h == nil {
		if err := n.truncate(); err != nil {
			return errno(err)
		}
	}
	return n.Getattr(ctx, h, out)
}

func (n *fileNode) truncate() error {
	if n.def.truncate == nil {
		return nil
	}
	n.in.fs.mu.Lock()
	defer n.in.fs.mu.Unlock()
	return n.def.truncate(n.in)
}

// Open opens the file.
func (n *fileNode) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	d := n.def
	if readable(flags) && d.read == nil && d.open == nil || writable(flags) && d.write == nil && d.open == nil {
		return nil, 0, syscall.EACCES
	}
	if truncates(flags) {
		if err := n.truncate(); err != nil {
			return nil, 0, errno(err)
		}
	}
	mode := uint32(fuse.FOPEN_DIRECT_IO)
	if d.name == "trace_pipe" {
		mode |= fuse.FOPEN_NONSEEKABLE
	}
	if d.open != nil {
		return &fuseHandle{h: d.open(n.in, n.cpu, flags)}, mode, 0
	}
	h := &textHandle{in: n.in}
	if d.read != nil {
		h.make = func() ([]byte, error) { return d.read(n.in) }
	}
	if d.write != nil {
		h.take = func(s string, by writer) error { return d.write(n.in, strings.TrimSuffix(s, "\n"), by) }
	}
	return &fuseHandle{h: h}, mode, 0
}

// fuseHandle is an open file.
type fuseHandle struct {
	mu sync.Mutex
	h  handle
}

var _ = (fs.FileReader)((*fuseHandle)(nil))
var _ = (fs.FileWriter)((*fuseHandle)(nil))
var _ = (fs.FileFlusher)((*fuseHandle)(nil))
var _ = (fs.FileReleaser)((*fuseHandle)(nil))

func (f *fuseHandle) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.h.read(ctx, off, len(dest))
	if err != nil {
		return nil, errno(err)
	}
	return fuse.ReadResultData(b), 0
}

func (f *fuseHandle) Write(ctx context.Context, b []byte, _ int64) (uint32, syscall.Errno) {
	f.mu.Lock()
	defer f.mu.Unlock()
	by := writer{}
	if c, ok := fuse.FromContext(ctx); ok {
		by.pid = int(c.Pid)
	}
	if err := f.h.write(b, by); err != nil {
		return 0, errno(err)
	}
	return uint32(len(b)), 0
}

func (f *fuseHandle) Flush(context.Context) syscall.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errno(f.h.flush())
}

func (f *fuseHandle) Release(context.Context) syscall.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.h.close()
	return 0
}

// commOf is the name of a process's first thread, "<...>" if it is not known, as the kernel shows it.
func commOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "<...>"
	}
	return strings.TrimSuffix(string(b), "\n")
}
