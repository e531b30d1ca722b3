//go:build linux

package tracefs

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// The directories. All but instances and per_cpu have what they have from the beginning.

// topNode is an instance's directory.
type topNode struct {
	fs.Inode
	in *instance
}

var _ = (fs.NodeOnAdder)((*topNode)(nil))

// dirMode is a directory's mode.
const dirMode = syscall.S_IFDIR | 0o750

// plainDir is a directory.
type plainDir struct{ fs.Inode }

var _ = (fs.NodeGetattrer)((*plainDir)(nil))

func (*plainDir) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode = 0o750
	return 0
}

func (n *topNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode = 0o750
	return 0
}

// addFile adds a file to a directory.
func addFile(ctx context.Context, dir *fs.Inode, in *instance, cpu int, def *file) {
	n := dir.NewPersistentInode(ctx, &fileNode{in: in, cpu: cpu, def: def}, fs.StableAttr{Mode: syscall.S_IFREG})
	dir.AddChild(def.name, n, false)
}

// addDir adds a directory.
func addDir(ctx context.Context, dir *fs.Inode, name string, n fs.InodeEmbedder) *fs.Inode {
	child := dir.NewPersistentInode(ctx, n, fs.StableAttr{Mode: syscall.S_IFDIR})
	dir.AddChild(name, child, false)
	return child
}

// OnAdd makes what is in it.
func (n *topNode) OnAdd(ctx context.Context) {
	dir, top := n.EmbeddedInode(), n.in.name == ""
	for _, f := range files() {
		if top || !f.top {
			addFile(ctx, dir, n.in, -1, &f)
		}
	}
	opts := addDir(ctx, dir, "options", &plainDir{})
	for _, o := range options {
		addFile(ctx, opts, n.in, -1, optionFile(o.name))
	}
	events := addDir(ctx, dir, "events", &plainDir{})
	addFile(ctx, events, n.in, -1, noEvents())
	addDir(ctx, dir, "per_cpu", &perCPU{in: n.in})
	if top {
		addDir(ctx, dir, "instances", &instances{fs: n.in.fs})
	}
}

// optionFile is the file of an option: 0 or 1.
func optionFile(name string) *file {
	return &file{
		name: name,
		read: text(func(in *instance) string {
			if in.epochs.now().flags[name] {
				return "1\n"
			}
			return "0\n"
		}),
		write: func(in *instance, s string, _ writer) error {
			n, err := parseNumber(s)
			switch {
			case err != nil || n > 1:
				return syscall.EINVAL
			case n == 0:
				return in.setOption("no" + name)
			}
			return in.setOption(name)
		},
	}
}

// noEvents is events/enable: there are none, so it can be written, and does nothing.
func noEvents() *file {
	return &file{
		name: "enable",
		read: text(func(*instance) string { return "0\n" }),
		write: func(_ *instance, s string, _ writer) error {
			if n, err := parseNumber(s); err != nil || n > 1 {
				return syscall.EINVAL
			}
			return nil
		},
	}
}

// perCPU is the directory per_cpu: it has one for each thread that was seen.
type perCPU struct {
	plainDir
	in *instance
}

var _ = (fs.NodeLookuper)((*perCPU)(nil))
var _ = (fs.NodeReaddirer)((*perCPU)(nil))

// cpus is how many numbers there are.
func (n *perCPU) cpus() int {
	n.in.fs.mu.Lock()
	defer n.in.fs.mu.Unlock()
	if t, err := n.in.fs.open(); err == nil {
		t.Close()
	}
	return max(1, len(n.in.fs.cpus))
}

func (n *perCPU) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	digits, ok := strings.CutPrefix(name, "cpu")
	cpu, err := strconv.Atoi(digits)
	if !ok || err != nil || cpu < 0 || fmt.Sprintf("cpu%d", cpu) != name || cpu >= n.cpus() {
		return nil, syscall.ENOENT
	}
	out.Mode = dirMode
	return n.NewInode(ctx, &cpuDir{in: n.in, cpu: cpu}, fs.StableAttr{Mode: syscall.S_IFDIR}), 0
}

func (n *perCPU) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	var list []fuse.DirEntry
	for i := range n.cpus() {
		list = append(list, fuse.DirEntry{Name: fmt.Sprintf("cpu%d", i), Mode: syscall.S_IFDIR})
	}
	return fs.NewListDirStream(list), 0
}

// cpuDir is a directory in it.
type cpuDir struct {
	plainDir
	in  *instance
	cpu int
}

var _ = (fs.NodeOnAdder)((*cpuDir)(nil))

func (n *cpuDir) OnAdd(ctx context.Context) {
	addFile(ctx, n.EmbeddedInode(), n.in, n.cpu, &file{name: "trace", open: openTrace})
	addFile(ctx, n.EmbeddedInode(), n.in, n.cpu, &file{name: "trace_pipe", open: openPipe})
	addFile(ctx, n.EmbeddedInode(), n.in, n.cpu, &file{name: "buffer_size_kb", open: openSize})
}

// instances is the directory of that name.
type instances struct {
	plainDir
	fs *FS
}

var _ = (fs.NodeMkdirer)((*instances)(nil))
var _ = (fs.NodeRmdirer)((*instances)(nil))

// mostInstances bounds how many there are.
const mostInstances = 256

func (n *instances) Mkdir(ctx context.Context, name string, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	switch {
	case n.fs.below[name] != nil:
		return nil, syscall.EEXIST
	case len(n.fs.below) >= mostInstances:
		return nil, syscall.ENOMEM
	}
	in := n.fs.newInstance(name)
	n.fs.below[name] = in
	out.Mode = dirMode
	return n.NewPersistentInode(ctx, &topNode{in: in}, fs.StableAttr{Mode: syscall.S_IFDIR}), 0
}

func (n *instances) Rmdir(_ context.Context, name string) syscall.Errno {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	in := n.fs.below[name]
	if in == nil {
		return syscall.ENOENT
	}
	in.gone = true
	delete(n.fs.below, name)
	return errno(n.fs.install())
}
