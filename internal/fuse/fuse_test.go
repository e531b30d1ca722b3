//go:build linux

package fuse

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// device is the kernel's end: requests come from a channel, and replies go to another.
type device struct {
	requests chan []byte
	replies  chan []byte
}

func (d *device) Read(b []byte) (int, error) {
	r, ok := <-d.requests
	switch {
	case !ok:
		return 0, syscall.ENODEV
	case r == nil:
		return 0, syscall.ENOENT // who asked was interrupted meanwhile
	}
	return copy(b, r), nil
}

func (d *device) Write(b []byte) (int, error) {
	d.replies <- slices.Clone(b)
	return len(b), nil
}

func (d *device) Close() error { return nil }

// folder is a directory of files, in which others can be made.
type folder struct {
	mu   sync.Mutex
	list []Entry
	all  map[string]Node
}

func (*folder) Mode() uint32 { return 0o750 }

func (f *folder) Lookup(name string) (Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.all[name]; n != nil {
		return n, nil
	}
	return nil, syscall.ENOENT
}

func (f *folder) List() []Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.list)
}

func (f *folder) Mkdir(name string) (Dir, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all[name] != nil {
		return nil, syscall.EEXIST
	}
	n := &folder{}
	f.all[name] = n
	f.list = append(f.list, Entry{name, true})
	return n, nil
}

func (f *folder) Rmdir(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, name)
	f.list = slices.DeleteFunc(f.list, func(e Entry) bool { return e.Name == name })
	return nil
}

// note is a file with a text; a read at its end waits.
type note struct {
	mu     sync.Mutex
	text   []byte
	by     int
	closed chan bool
	wake   func()
}

func (*note) Mode() uint32                                   { return 0o640 }
func (n *note) Open(uint32) (h Handle, stream bool, e error) { return n, true, nil }
func (n *note) Truncate() error                              { n.set(nil, 0); return nil }
func (*note) Flush() error                                   { return syscall.ENOSPC }
func (n *note) Release()                                     { n.closed <- true }

func (n *note) Write(b []byte, pid int) error { n.set(slices.Clone(b), pid); return nil }

func (n *note) set(text []byte, pid int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text, n.by = text, pid
	if n.wake != nil {
		n.wake()
		n.wake = nil
	}
}

func (n *note) Poll(wake func()) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wake = wake; len(n.text) > 0 {
		return Readable
	}
	return 0
}

func (n *note) Read(ctx context.Context, off int64, _ int, flags uint32) ([]byte, error) {
	n.mu.Lock()
	text := n.text
	n.mu.Unlock()
	if off >= 0 && off < int64(len(text)) {
		return text[off:], nil
	}
	if flags&syscall.O_NONBLOCK != 0 {
		return nil, syscall.EAGAIN
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// kernel asks a server.
type kernel struct {
	*device
	t    *testing.T
	s    *Server
	note *note
	last uint64
}

const (
	user = 1000
	pid  = 77
)

func newKernel(t *testing.T) *kernel {
	k := &kernel{t: t, device: &device{make(chan []byte), make(chan []byte, 16)}, note: &note{closed: make(chan bool, 16)}}
	root := &folder{list: []Entry{{"note", false}}, all: map[string]Node{"note": k.note}}
	k.s = newServer(k.device, root, user, user)
	go k.s.serve()
	t.Cleanup(func() {
		close(k.requests)
		k.s.Wait()
	})
	return k
}

// encode is a request. Numbers are u32 and u64, texts as they are.
func encode(op opcode, unique, node uint64, body ...any) []byte {
	var b reply
	for _, v := range body {
		switch v := v.(type) {
		case int:
			b = b.u32(uint32(v))
		case uint64:
			b = b.u64(v)
		case string:
			b = append(b, v...)
		}
	}
	head := reply(nil).u32(uint32(requestHeader + len(b))).u32(uint32(op)).u64(unique).u64(node)
	return append(head.u32(user).u32(user).u32(pid).u32(0), b...)
}

// send asks without waiting.
func (k *kernel) send(op opcode, node uint64, body ...any) (unique uint64) {
	k.last += 2
	k.requests <- encode(op, k.last, node, body...)
	return k.last
}

// answer is the reply to a request.
func (k *kernel) answer(unique uint64, want syscall.Errno) message {
	k.t.Helper()
	m := message(<-k.replies)
	if int(m.u32(0)) != len(m) || m.u64(8) != unique {
		k.t.Fatalf("request %d: reply %x", unique, []byte(m))
	}
	if e := syscall.Errno(-int32(m.u32(4))); e != want {
		k.t.Fatalf("request %d: %v, want %v", unique, e, want)
	}
	return m[replyHeader:]
}

func (k *kernel) ask(want syscall.Errno, op opcode, node uint64, body ...any) message {
	k.t.Helper()
	return k.answer(k.send(op, node, body...), want)
}

func (k *kernel) size(m message, want int) message {
	k.t.Helper()
	if len(m) != want {
		k.t.Fatalf("the reply has %d bytes, want %d", len(m), want)
	}
	return m
}

const none = uint64(0)

func TestFiles(t *testing.T) {
	k := newKernel(t)
	m := k.size(k.ask(0, opInit, 0, major, 44, 1<<17, -1, strings.Repeat("\x00", 48)), 64)
	if m.u32(0) != major || m.u32(4) != minor || m.u32(12) != initAtomicTrunc|initBigWrites|initParallelDir {
		t.Errorf("init: %x", m)
	}
	k.ask(0, opInit, 0, major+1, 0, 0, 0)
	k.ask(syscall.EPROTO, opInit, 0, major, minorMin-1, 0, 0)

	k.ask(syscall.ENOENT, opLookup, rootID, "nothing\x00")
	m = k.size(k.ask(0, opLookup, rootID, "note\x00"), 128)
	id := m.u64(0)
	if again := k.ask(0, opLookup, rootID, "note\x00"); again.u64(0) != id {
		t.Error("a name leads to another node")
	}
	inode := k.size(k.ask(0, opGetattr, id, none, none), 104).u64(16)
	if inode != m.u64(40) {
		t.Error("lookup and getattr have different inodes")
	}
	if mode := m.u32(40 + 60); mode != syscall.S_IFREG|0o640 {
		t.Errorf("mode %o", mode)
	}
	k.ask(0, opAccess, id, 6, 0)
	k.ask(syscall.EACCES, opAccess, id, 1, 0)
	k.ask(syscall.ENOTDIR, opLookup, id, "x\x00")
	k.ask(syscall.EISDIR, opOpen, rootID, 0, 0)
	k.size(k.ask(0, opStatfs, rootID), 80)

	m = k.size(k.ask(0, opOpen, id, syscall.O_RDWR, 0), 16)
	fh := m.u64(0)
	if m.u32(8) != openDirect|openStream {
		t.Errorf("open: %x", m)
	}
	write := func(size int) []any { return []any{fh, none, size, 0, none, none, "hello"} }
	k.ask(syscall.EINVAL, opWrite, id, write(6)...)
	if m := k.size(k.ask(0, opWrite, id, write(5)...), 8); m.u32(0) != 5 || k.note.by != pid {
		t.Errorf("write: %x by %d", m, k.note.by)
	}
	read := func(off, size int) []any { return []any{fh, uint64(off), size, 0, none, none} }
	if m := k.ask(0, opRead, id, read(1, 3)...); string(m) != "ell" {
		t.Errorf("read: %q", m)
	}
	k.ask(syscall.EBADF, opReaddir, rootID, read(0, 100)...)

	// A size is set by truncate, and by ftruncate not.
	rest := strings.Repeat("\x00", 64)
	k.ask(0, opSetattr, id, setSize|setHandle, 0, fh, none, rest)
	if len(k.note.text) != 5 {
		t.Error("ftruncate truncates")
	}
	k.size(k.ask(0, opSetattr, id, setSize, 0, none, none, rest), 104)
	if len(k.note.text) != 0 {
		t.Error("truncate does not")
	}
	k.ask(syscall.EOPNOTSUPP, opSetattr, rootID, 1, 0, none, none, rest)

	k.ask(syscall.ENOSPC, opFlush, id, fh, none, none)
	k.ask(0, opRelease, id, fh, none, none)
	<-k.note.closed
	k.ask(syscall.EBADF, opRead, id, read(0, 1)...)

	// It is dropped when as many lookups are forgotten as there were, and is what it was.
	k.send(opForget, id, uint64(1))
	k.ask(0, opGetattr, id, none, none)
	k.send(opBatchForget, 0, 2, 0, id, uint64(1), uint64(12345), uint64(1))
	k.ask(syscall.ESTALE, opGetattr, id, none, none)
	if m := k.ask(0, opLookup, rootID, "note\x00"); m.u64(0) == id || m.u64(40) != inode {
		t.Error("a node that is looked up again has the id that it had, or another inode")
	}
	k.send(opForget, rootID, uint64(1000))
	k.ask(0, opGetattr, rootID, none, none)
	k.ask(syscall.EACCES, opCreate, rootID)
	k.ask(syscall.EPERM, opUnlink, rootID, "note\x00")
	k.ask(syscall.ENOSYS, 22, rootID)
	k.ask(0, opDestroy, 0)
}

func TestDirectories(t *testing.T) {
	k := newKernel(t)
	k.ask(syscall.EINVAL, opMkdir, rootID, 0o755, 0, "unended")
	first := k.size(k.ask(0, opMkdir, rootID, 0o755, 0, "a\x00"), 128)
	k.ask(syscall.EEXIST, opMkdir, rootID, 0o755, 0, "a\x00")
	if m := k.ask(0, opLookup, rootID, "a\x00"); m.u64(0) != first.u64(0) {
		t.Error("what was made has another id when it is looked up")
	}
	list := func() (names []string, inodes []uint64) {
		fh := k.size(k.ask(0, opOpendir, rootID, 0, 0), 16).u64(0)
		for at := none; ; {
			m := k.ask(0, opReaddir, rootID, fh, at, 70, 0, none, none) // two names fit
			if len(m) == 0 {
				break
			}
			for len(m) > 0 {
				n := int(m.u32(16))
				names, inodes = append(names, string(m[24:24+n])), append(inodes, m.u64(0))
				at = m.u64(8)
				m = m[24+(n+7)&^7:]
			}
		}
		k.ask(0, opReleasedir, rootID, fh, none, none)
		k.ask(syscall.EBADF, opReleasedir, rootID, fh, none, none)
		return names, inodes
	}
	names, inodes := list()
	if !slices.Equal(names, []string{".", "..", "note", "a"}) || inodes[0] != rootID || inodes[3] != first.u64(40) {
		t.Errorf("names %q, inodes %d", names, inodes)
	}
	k.ask(0, opRmdir, rootID, "a\x00")
	k.ask(syscall.ENOENT, opLookup, rootID, "a\x00")
	k.ask(0, opGetattr, first.u64(0), none, none) // somebody is in it
	if again := k.ask(0, opMkdir, rootID, 0o755, 0, "a\x00"); again.u64(0) == first.u64(0) {
		t.Error("a directory that is made has the id of one that was removed")
	}
	k.send(opForget, first.u64(0), uint64(2))
	k.ask(syscall.ESTALE, opGetattr, first.u64(0), none, none)
	k.ask(0, opLookup, rootID, "a\x00")
}

// TestInterrupt: a read that waits ends when it is interrupted, and at the end; others go on meanwhile.
func TestInterrupt(t *testing.T) {
	k := newKernel(t)
	id := k.ask(0, opLookup, rootID, "note\x00").u64(0)
	fh := k.ask(0, opOpen, id, 0, 0).u64(0)
	read := []any{fh, none, 10, 0, none, none}
	waits := k.send(opRead, id, read...)
	k.requests <- nil
	k.ask(0, opGetattr, id, none, none)
	k.send(opInterrupt, 0, waits+1) // another one's
	k.ask(0, opGetattr, id, none, none)
	k.send(opInterrupt, 0, waits)
	k.answer(waits, syscall.EINTR)
	k.send(opInterrupt, 0, waits)
	k.send(opRead, id, read...) // ends when the device does
}

// TestPoll: the kernel is told what can be done without waiting, and once when that is more, if it wants to know.
func TestPoll(t *testing.T) {
	k := newKernel(t)
	id := k.ask(0, opLookup, rootID, "note\x00").u64(0)
	fh := k.ask(0, opOpen, id, syscall.O_RDWR, 0).u64(0)
	const number = uint64(1<<40 + 7)
	poll := func(want uint32, flags int) {
		t.Helper()
		if m := k.size(k.ask(0, opPoll, id, fh, number, flags, -1), 8); m.u32(0) != want {
			t.Errorf("poll says %#x, want %#x", m.u32(0), want)
		}
	}
	write := []any{fh, none, 5, 0, none, none, "hello"}
	poll(0, 0)
	k.size(k.ask(0, opWrite, id, write...), 8) // nobody wants to know
	poll(Readable, 0)
	k.ask(0, opSetattr, id, setSize, 0, none, none, strings.Repeat("\x00", 64))
	poll(0, pollNotify)
	wrote := k.send(opWrite, id, write...)
	if m := message(<-k.replies); len(m) != 24 || m.u32(0) != 24 || m.u32(4) != 1 || m.u64(8) != 0 || m.u64(16) != number {
		t.Errorf("the kernel is told %x", []byte(m))
	}
	k.size(k.answer(wrote, 0), 8)
	poll(Readable, pollNotify)
	k.ask(syscall.EAGAIN, opRead, id, fh, uint64(5), 10, 0, none, syscall.O_NONBLOCK, 0)

	list := k.ask(0, opOpendir, rootID, 0, 0).u64(0)
	k.ask(syscall.EBADF, opPoll, rootID, list, number, 0, -1)
}

func TestShortRequests(t *testing.T) {
	for op := range opcode(64) {
		whole := encode(op, 2, rootID, strings.Repeat("\x00", op.need()))
		for n := range whole {
			short := slices.Clone(whole[:n])
			if r, err := parse(short); err == nil || n < requestHeader && r != nil {
				t.Errorf("request %d with %d bytes of %d is read", op, n, len(whole))
			}
			if n >= requestHeader {
				binary.NativeEndian.PutUint32(short, uint32(n))
				if r, err := parse(short); err == nil || r == nil {
					t.Errorf("request %d that says it has %d bytes: %v", op, n, err)
				}
			}
		}
		if _, err := parse(whole); err != nil {
			t.Errorf("request %d: %v", op, err)
		}
	}
}
