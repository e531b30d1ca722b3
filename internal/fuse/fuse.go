//go:build linux

// Package fuse serves a file system of directories and files that are made when they are read, over the kernel's FUSE
// protocol (linux/fuse.h). It is for package tracefs and has what that needs: no data is cached, by the kernel neither,
// no names are created but directories, and each request is served in a goroutine of its own, so a read may wait.
//
//	s, err := fuse.Mount("/mnt", root, fuse.Options{Source: "tracefs", Name: "fentry"})
//	if err != nil {
//		return err
//	}
//	s.Wait() // until somebody unmounts it
//
// Nothing is done when a program starts that imports it.
package fuse

import (
	"context"
	"errors"
	"syscall"
)

// A Node is a [Dir] or a [File]. Files and directories belong to the user who mounts them.
type Node interface {
	// Mode returns the permissions.
	Mode() uint32
}

// A Dir is a directory.
type Dir interface {
	Node
	// Lookup returns what has a name, ENOENT if nothing has. While the kernel remembers what it was given, that stays:
	// another node for the same name is not used. A name must not go but by Rmdir.
	Lookup(name string) (Node, error)
	// List returns what there is.
	List() []Entry
}

// An Entry is a name in a directory.
type Entry struct {
	Name string
	Dir  bool
}

// A Maker is a directory in which others can be made and removed.
type Maker interface {
	Dir
	Mkdir(name string) (Dir, error)
	Rmdir(name string) error
}

// A File is a file.
type File interface {
	Node
	// Open opens it with the flags of open(2), O_TRUNC among them. If stream is true, it has no offsets.
	Open(flags uint32) (h Handle, stream bool, err error)
	// Truncate is called for truncate(2), not for ftruncate(2) or open(2).
	Truncate() error
}

// A Handle is an open file. Its methods can be called at the same time.
type Handle interface {
	// Read returns what there is from an offset on, at most size bytes, nothing at the end. The flags are those of open(2)
	// as they are now: O_NONBLOCK can come and go. The context ends if the reader is interrupted, or nothing is mounted any
	// more.
	Read(ctx context.Context, off int64, size int, flags uint32) ([]byte, error)
	// Write takes all of what the process pid writes. It must not keep b.
	Write(b []byte, pid int) error
	// Flush is called when a descriptor is closed, which is not always the last one. An error is close's.
	Flush() error
	// Release is called at the end; nobody waits for it.
	Release()
}

// A Poller is a Handle that is not always ready, as others are.
type Poller interface {
	Handle
	// Poll returns what poll(2) says of it: Readable and others. If wake is not nil, somebody waits: it is to be called when
	// there is something that was not there before, in place of those that were given before, and replaces them. It does not
	// wait, and can be called too often.
	Poll(wake func()) (events uint32)
}

// What a Poller says.
const (
	Readable = 0x41  // POLLIN, POLLRDNORM
	Writable = 0x104 // POLLOUT, POLLWRNORM
	Failed   = 0x8   // POLLERR
	Ended    = 0x10  // POLLHUP
)

// errno is what the kernel is told of an error.
func errno(err error) syscall.Errno {
	var e syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e) && e != 0 && e < mostErrno:
		return e
	case errors.Is(err, context.Canceled):
		return syscall.EINTR
	}
	return syscall.EIO
}

// mostErrno is above the errors that the kernel takes.
const mostErrno = 512
