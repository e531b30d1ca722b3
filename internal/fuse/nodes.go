//go:build linux

package fuse

import (
	"encoding/binary"
	"hash/fnv"
	"sync"
	"syscall"
)

// rootID is the root's id, which the kernel knows.
const rootID = 1

// node is a node that the kernel has been told of. Ids are never given again; the numbers that users see (inode) follow
// from names, so they are the same when a node has been forgotten and is looked up again.
type node struct {
	id, inode uint64
	parent    *node // of the root: itself
	name      string
	is        Node
	lookups   uint64 // that the kernel has not forgotten
}

// tables are what has been looked up and opened.
type tables struct {
	mu       sync.Mutex
	nodes    map[uint64]*node
	children map[child]*node // those that a name leads to
	handles  map[uint64]*open
	last     uint64 // id or handle
}

type child struct {
	parent uint64
	name   string
}

// open is an open file or directory.
type open struct {
	file Handle // nil: a directory
	mu   sync.Mutex
	list []Entry // of a directory, as it was when it was read from the beginning
}

func (t *tables) begin(root Dir) {
	r := &node{id: rootID, inode: rootID, is: root}
	r.parent = r
	t.nodes, t.children, t.handles = map[uint64]*node{rootID: r}, make(map[child]*node), make(map[uint64]*open)
	t.last = rootID
}

// inodeOf is the number of what is in a directory.
func inodeOf(dir uint64, name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(append(binary.NativeEndian.AppendUint64(nil, dir), name...))
	return max(h.Sum64(), rootID+1)
}

// node returns a node that the kernel knows.
func (t *tables) node(id uint64) (*node, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.nodes[id]; n != nil {
		return n, nil
	}
	return nil, syscall.ESTALE
}

// dir returns a directory that the kernel knows.
func (t *tables) dir(id uint64) (*node, Dir, error) {
	n, err := t.node(id)
	if err != nil {
		return nil, nil, err
	}
	if d, ok := n.is.(Dir); ok {
		return n, d, nil
	}
	return nil, nil, syscall.ENOTDIR
}

// found notes that the kernel is told of a name. A node that was made just now is not one that had that name before.
func (t *tables) found(parent *node, name string, is Node, made bool) *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := child{parent.id, name}
	n := t.children[key]
	if n == nil || made {
		t.last++
		n = &node{id: t.last, inode: inodeOf(parent.inode, name), parent: parent, name: name, is: is}
		t.nodes[n.id], t.children[key] = n, n
	}
	n.lookups++
	return n
}

// removed notes that a name leads nowhere any more.
func (t *tables) removed(parent *node, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.children, child{parent.id, name})
}

// forget takes lookups back. What has none any more is dropped.
func (t *tables) forget(id, lookups uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[id]
	if n == nil || id == rootID {
		return
	}
	n.lookups -= min(lookups, n.lookups)
	if n.lookups > 0 {
		return
	}
	delete(t.nodes, id)
	if key := (child{n.parent.id, n.name}); t.children[key] == n {
		delete(t.children, key)
	}
}

// add returns the number of what has been opened.
func (t *tables) add(o *open) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.handles[t.last] = o
	return t.last
}

// handle returns an open file; if it ends, the number is not its any more.
func (t *tables) handle(fh uint64, ends bool) (Handle, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.handles[fh]
	if o == nil || o.file == nil {
		return nil, syscall.EBADF
	}
	if ends {
		delete(t.handles, fh)
	}
	return o.file, nil
}

// list returns an open directory, likewise.
func (t *tables) list(fh uint64, ends bool) (*open, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.handles[fh]
	if o == nil || o.file != nil {
		return nil, syscall.EBADF
	}
	if ends {
		delete(t.handles, fh)
	}
	return o, nil
}
