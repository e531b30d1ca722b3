//go:build linux

package fuse

import (
	"context"
	"syscall"
)

// do does what a request asks for.
func (s *Server) do(ctx context.Context, r *request) (reply, error) {
	switch r.op {
	case opLookup:
		return s.lookup(r)
	case opGetattr:
		n, err := s.node(r.node)
		if err != nil {
			return nil, err
		}
		return s.attributes(n), nil
	case opSetattr:
		return s.setattr(r)
	case opAccess:
		return s.access(r)
	case opMkdir:
		return s.mkdir(r)
	case opRmdir:
		return s.rmdir(r)
	case opOpen:
		return s.open(r)
	case opRead, opWrite, opFlush, opRelease:
		return s.file(ctx, r)
	case opPoll:
		return s.poll(r)
	case opOpendir:
		if _, _, err := s.dir(r.node); err != nil {
			return nil, err
		}
		return newReply(16).u64(s.add(&open{})).zeros(8), nil
	case opReaddir:
		return s.readdir(r)
	case opReleasedir:
		_, err := s.list(r.body.u64(0), true)
		return nil, err
	case opStatfs: // no blocks, no files; sizes of blocks and the longest name
		return newReply(80).zeros(40).u32(blockSize).u32(longestName).u32(blockSize).zeros(28), nil
	case opDestroy:
		return nil, nil
	case opCreate:
		return nil, syscall.EACCES // as in the kernel's tracefs
	case opSymlink, opMknod, opUnlink, opRename, opRename2, opLink:
		return nil, syscall.EPERM
	}
	return nil, syscall.ENOSYS // extended attributes, locks and the rest: the kernel does not ask again
}

const (
	blockSize   = 4096
	longestName = 255 // the kernel passes on longer ones
)

// attr appends what stat(2) tells of a node. Sizes and times are 0.
func (s *Server) attr(out reply, n *node) reply {
	kind := uint32(syscall.S_IFREG)
	if _, ok := n.is.(Dir); ok {
		kind = syscall.S_IFDIR
	}
	out = out.u64(n.inode).zeros(16 + 24 + 12)
	return out.u32(kind | n.is.Mode()&0o7777).u32(1).u32(s.uid).u32(s.gid).u32(0).u32(blockSize).u32(0)
}

// remembered is for how many seconds the kernel remembers a name and what it is. Neither changes, and a name goes only by
// a request of the kernel's own, or with the directory that it is in. Names that are not there may come: it does not
// remember these.
const remembered = 3600

// attributes and entry tell the kernel of a node.
func (s *Server) attributes(n *node) reply { return s.attr(newReply(104).u64(remembered).zeros(8), n) }

func (s *Server) entry(n *node) reply {
	return s.attr(newReply(128).u64(n.id).zeros(8).u64(remembered).u64(remembered).zeros(8), n)
}

func (s *Server) lookup(r *request) (reply, error) {
	parent, d, err := s.dir(r.node)
	if err != nil {
		return nil, err
	}
	name, err := r.body.name(0)
	if err != nil {
		return nil, err
	}
	is, err := d.Lookup(name)
	if err != nil {
		return nil, err
	}
	return s.entry(s.found(parent, name, is, false)), nil
}

// setattr is chmod, chown and touch, which change nothing, and truncate.
func (s *Server) setattr(r *request) (reply, error) {
	n, err := s.node(r.node)
	if err != nil {
		return nil, err
	}
	f, ok := n.is.(File)
	if !ok {
		return nil, syscall.EOPNOTSUPP
	}
	if r.body.u32(0)&(setSize|setHandle) == setSize {
		if err := f.Truncate(); err != nil {
			return nil, err
		}
	}
	return s.attributes(n), nil
}

// access tells whether access(2) is to say that something may be done. Nobody comes here but the owner.
func (s *Server) access(r *request) (reply, error) {
	n, err := s.node(r.node)
	if err == nil && r.uid != 0 && r.body.u32(0)&7&^(n.is.Mode()>>6) != 0 {
		err = syscall.EACCES
	}
	return nil, err
}

func (s *Server) mkdir(r *request) (reply, error) {
	parent, m, name, err := s.maker(r, 8)
	if err != nil {
		return nil, err
	}
	is, err := m.Mkdir(name)
	if err != nil {
		return nil, err
	}
	return s.entry(s.found(parent, name, is, true)), nil
}

func (s *Server) rmdir(r *request) (reply, error) {
	parent, m, name, err := s.maker(r, 0)
	if err != nil {
		return nil, err
	}
	if err := m.Rmdir(name); err != nil {
		return nil, err
	}
	s.removed(parent, name)
	return nil, nil
}

// maker returns the directory that a request names, and the name at an offset.
func (s *Server) maker(r *request, at int) (*node, Maker, string, error) {
	n, d, err := s.dir(r.node)
	if err != nil {
		return nil, nil, "", err
	}
	m, ok := d.(Maker)
	if !ok {
		return nil, nil, "", syscall.EPERM
	}
	name, err := r.body.name(at)
	if err == nil && len(name) > longestName {
		err = syscall.ENAMETOOLONG
	}
	return n, m, name, err
}

func (s *Server) open(r *request) (reply, error) {
	n, err := s.node(r.node)
	if err != nil {
		return nil, err
	}
	f, ok := n.is.(File)
	if !ok {
		return nil, syscall.EISDIR
	}
	h, stream, err := f.Open(r.body.u32(0))
	if err != nil {
		return nil, err
	}
	flags := uint32(openDirect)
	if stream {
		flags |= openStream
	}
	return newReply(16).u64(s.add(&open{file: h})).u32(flags).u32(0), nil
}

// file is what is done with an open file.
func (s *Server) file(ctx context.Context, r *request) (reply, error) {
	h, err := s.handle(r.body.u64(0), r.op == opRelease)
	if err != nil {
		return nil, err
	}
	switch r.op {
	case opRead:
		size := int(min(r.body.u32(16), mostData))
		b, err := h.Read(ctx, int64(r.body.u64(8)), size, r.body.u32(32))
		b = b[:min(len(b), size)]
		return append(newReply(len(b)), b...), err
	case opWrite:
		size, data := r.body.u32(16), r.body[40:]
		if int64(size) > int64(len(data)) {
			return nil, syscall.EINVAL
		}
		return newReply(8).u32(size).u32(0), h.Write(data[:size], int(r.pid))
	case opFlush:
		return nil, h.Flush()
	}
	h.Release()
	return nil, nil
}

// poll tells what can be done with an open file without waiting, and sees to it that the kernel, which has a number of its
// own for it, is told when that is more.
func (s *Server) poll(r *request) (reply, error) {
	h, err := s.handle(r.body.u64(0), false)
	if err != nil {
		return nil, err
	}
	events := uint32(Readable | Writable)
	if p, ok := h.(Poller); ok {
		var wake func()
		if number := r.body.u64(8); r.body.u32(16)&pollNotify != 0 {
			wake = func() { _, _ = s.device.Write(newReply(8).u64(number).notification(notifyPoll)) }
		}
		events = p.Poll(wake)
	}
	return newReply(8).u32(events).u32(0), nil
}

// readdir returns names from an offset on: as many as there is room for.
func (s *Server) readdir(r *request) (reply, error) {
	n, d, err := s.dir(r.node)
	if err != nil {
		return nil, err
	}
	o, err := s.list(r.body.u64(0), false)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	from, size := r.body.u64(8), int(min(r.body.u32(16), mostData))
	if from == 0 {
		o.list = append([]Entry{{".", true}, {"..", true}}, d.List()...)
	}
	out := newReply(size)
	for at := from; at < uint64(len(o.list)); at++ {
		e := o.list[at]
		const fields, align = 24, 8
		padded := (len(e.Name) + align - 1) &^ (align - 1)
		if len(out)-replyHeader+fields+padded > size {
			break
		}
		inode, kind := inodeOf(n.inode, e.Name), uint32(syscall.DT_REG)
		switch e.Name {
		case ".":
			inode = n.inode
		case "..":
			inode = n.parent.inode
		}
		if e.Dir {
			kind = syscall.DT_DIR
		}
		out = append(out.u64(inode).u64(at+1).u32(uint32(len(e.Name))).u32(kind), e.Name...)
		out = out.zeros(padded - len(e.Name))
	}
	return out, nil
}
