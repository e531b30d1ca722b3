//go:build linux

package tracefs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/fentry-dev/fentry/internal/fuse"
)

// The directories. All but instances and per_cpu have what they have from the beginning.

// dir is a directory.
type dir struct {
	mu    sync.Mutex
	list  []fuse.Entry
	nodes map[string]fuse.Node
}

var _ = (fuse.Dir)((*dir)(nil))

// Mode is a directory's mode.
func (*dir) Mode() uint32 { return 0o750 }

// Lookup returns what is in it.
func (d *dir) Lookup(name string) (fuse.Node, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.nodes[name]; n != nil {
		return n, nil
	}
	return nil, syscall.ENOENT
}

// List returns the names in it.
func (d *dir) List() []fuse.Entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list)
}

// add adds a file or directory.
func (d *dir) add(name string, n fuse.Node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.nodes == nil {
		d.nodes = make(map[string]fuse.Node)
	}
	_, isDir := n.(fuse.Dir)
	d.list = append(d.list, fuse.Entry{Name: name, Dir: isDir})
	d.nodes[name] = n
}

// remove removes one.
func (d *dir) remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = slices.DeleteFunc(d.list, func(e fuse.Entry) bool { return e.Name == name })
	delete(d.nodes, name)
}

// addFile adds a file to a directory.
func (d *dir) addFile(in *instance, cpu int, def *file) {
	d.add(def.name, &fileNode{in: in, cpu: cpu, def: def})
}

// newTop returns an instance's directory.
func newTop(in *instance) *dir {
	d, top := &dir{}, in.name == ""
	for _, f := range files() {
		if top || !f.top {
			d.addFile(in, -1, &f)
		}
	}
	opts := &dir{}
	for _, o := range options {
		opts.addFile(in, -1, optionFile(o.name))
	}
	d.add("options", opts)
	d.add("events", newEventDir(in, ""))
	d.add("per_cpu", &perCPU{in: in})
	if top {
		d.add("instances", &instances{fs: in.fs})
		d.add("trace_stat", &statistics{in: in})
	}
	return d
}

// optionFile is the file of an option: 0 or 1.
func optionFile(name string) *file {
	return &file{
		name: name,
		read: text(func(in *instance) string {
			return bit(in.epochs.now().flags[name])
		}),
		write: func(in *instance, s string, _ writer) error {
			n, err := parseNumber(s)
			switch {
			case err != nil:
				return err
			case n > 1:
				return syscall.EINVAL
			case n == 0:
				return in.setOption("no" + name)
			}
			return in.setOption(name)
		},
	}
}

// perCPU is the directory per_cpu: it has one for each thread that was seen.
type perCPU struct {
	dir
	in *instance
}

// threads is how many threads have numbers, and 1 if none has.
func (fs *FS) threads() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if t, err := fs.open(); err == nil {
		t.Close()
	}
	return max(1, len(fs.cpus))
}

// numbered returns the number of a thread in a name that begins with a prefix.
func (fs *FS) numbered(prefix, name string) (int, error) {
	digits, ok := strings.CutPrefix(name, prefix)
	cpu, err := strconv.Atoi(digits)
	if !ok || err != nil || cpu < 0 || fmt.Sprint(prefix, cpu) != name || cpu >= fs.threads() {
		return 0, syscall.ENOENT
	}
	return cpu, nil
}

// each lists a name for each thread.
func (fs *FS) each(prefix string, dir bool) (list []fuse.Entry) {
	for i := range fs.threads() {
		list = append(list, fuse.Entry{Name: fmt.Sprint(prefix, i), Dir: dir})
	}
	return list
}

// Lookup returns a thread's directory.
func (n *perCPU) Lookup(name string) (fuse.Node, error) {
	cpu, err := n.in.fs.numbered("cpu", name)
	if err != nil {
		return nil, err
	}
	d := &dir{}
	d.addFile(n.in, cpu, &file{name: "trace", open: openTrace})
	d.addFile(n.in, cpu, &file{name: "trace_pipe", open: openPipe})
	d.addFile(n.in, cpu, &file{name: "buffer_size_kb", open: openSize})
	return d, nil
}

// List returns the threads' names.
func (n *perCPU) List() []fuse.Entry { return n.in.fs.each("cpu", true) }

// statistics is the directory trace_stat: a profile of each thread.
type statistics struct {
	dir
	in *instance
}

// Lookup returns a thread's profile.
func (n *statistics) Lookup(name string) (fuse.Node, error) {
	cpu, err := n.in.fs.numbered("function", name)
	if err != nil {
		return nil, err
	}
	read := func(in *instance) ([]byte, error) { return in.fs.profileOf(cpu) }
	return &fileNode{in: n.in, cpu: cpu, def: &file{name: name, read: read}}, nil
}

// List returns the profiles' names.
func (n *statistics) List() []fuse.Entry { return n.in.fs.each("function", false) }

// instances is the directory of that name.
type instances struct {
	dir
	fs *FS
}

var _ = (fuse.Maker)((*instances)(nil))

// mostInstances bounds how many there are.
const mostInstances = 256

// Mkdir makes an instance.
func (n *instances) Mkdir(name string) (fuse.Dir, error) {
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
	top := newTop(in)
	n.add(name, top)
	return top, nil
}

// Rmdir removes one.
func (n *instances) Rmdir(name string) error {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	in := n.fs.below[name]
	if in == nil {
		return syscall.ENOENT
	}
	in.gone = true
	delete(n.fs.below, name)
	n.remove(name)
	return n.fs.install()
}
