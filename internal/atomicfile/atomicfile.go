// Package atomicfile replaces files so that nobody ever sees half of one.
//
//	err := atomicfile.Write("prog.traced", atomicfile.Options{Like: "prog"}, func(w *os.File) error {
//		_, err := w.Write(image)
//		return err
//	})
//
// The new contents are written to a file without a name where the file system
// can do that (O_TMPFILE), so a process that is killed leaves nothing behind;
// then they are given mode, owner and extended attributes, flushed, and moved
// over the destination in one step. When anything fails the destination is as
// it was.
//
// That step takes two system calls, because Linux cannot put a file without a
// name in the place of another: link and rename. A process that is killed
// between them leaves one file, .fentry-*, which with Options.Alone the next
// run on the same destination takes away.
package atomicfile

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/safefile"
)

// Options of [Write].
type Options struct {
	// Like names the file whose mode, owner and extended attributes the new
	// file gets; "": the destination itself if it exists, else the umask decides.
	Like string
	// LikeFile is Like for a file that is open.
	LikeFile *os.File
	// KeepLinks writes a destination that has several hard links in place
	// (through the link count, not atomically), so that all its names keep
	// showing one file. Without it the other names keep the old contents.
	// An error leaves the old contents; a process that is killed meanwhile
	// does not.
	KeepLinks bool
	// KeepTime gives the new file the modification time of Like.
	KeepTime bool
	// DropSetID clears the set-user-ID and set-group-ID bits and does not copy
	// file capabilities.
	DropSetID bool
	// NoSync skips flushing to disk before the rename.
	NoSync bool
	// Own says that the contents are new, not made from those of the destination: the file becomes this user's. A
	// destination of another user is no model for it, as that user could then read and change it.
	Own bool
	// Private says that a new file is for this user only (0600), whatever the umask.
	Private bool
	// Alone says that the caller keeps all others from replacing the file, by
	// a lock. The name the new file has for a moment is then made of that of
	// the destination, and what a killed process has left there is removed.
	Alone bool
}

// Write replaces the file at path by what write puts into w. A symbolic link at path is followed, and its target
// replaced, if the link is this user's or root's (see safefile.Target). Errors name the path.
func Write(path string, o Options, write func(w *os.File) error) error {
	d, name, err := safefile.Target(path)
	if err == nil {
		defer d.Close()
		err = replace(d, name, o, write)
	}
	return withPath(path, err)
}

// WriteIn is Write for a file in an open directory. A symbolic link of that name is an error.
func WriteIn(d *safefile.Dir, name string, o Options, write func(w *os.File) error) error {
	return withPath(filepath.Join(d.Name(), name), replace(d, name, o, write))
}

// withPath puts the path in front of an error.
func withPath(path string, err error) error {
	if err == nil {
		return nil
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("%s: %s: %w", path, pe.Op, pe.Err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// model opens the file whose mode, owner and attributes the new one gets, to be looked at only (O_PATH); -1: there is
// none. old is the file that is replaced, nil if there is none.
func model(d *safefile.Dir, name string, o Options) (fd int, old *unix.Stat_t, err error) {
	fd, err = unix.Openat(d.Fd(), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		fd = -1
	case err != nil:
		return -1, nil, err
	default:
		old = new(unix.Stat_t)
		if err = unix.Fstat(fd, old); err == nil && old.Mode&unix.S_IFMT != unix.S_IFREG {
			err = errors.New("not a regular file")
		}
		if err != nil {
			unix.Close(fd)
			return -1, nil, err
		}
	}
	other := o.Like != "" || o.LikeFile != nil
	if fd >= 0 && (other || o.Own && int(old.Uid) != os.Geteuid()) {
		unix.Close(fd)
		fd = -1
	}
	if o.LikeFile != nil {
		if fd, err = unix.FcntlInt(o.LikeFile.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return -1, nil, &fs.PathError{Op: "dup", Path: o.LikeFile.Name(), Err: err}
		}
	} else if o.Like != "" {
		if fd, err = unix.Open(o.Like, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
			return -1, nil, &fs.PathError{Op: "stat", Path: o.Like, Err: err}
		}
	}
	return fd, old, nil
}

func replace(d *safefile.Dir, dest string, o Options, write func(w *os.File) error) error {
	like, old, err := model(d, dest, o)
	if err != nil {
		return err
	}
	if like >= 0 {
		defer unix.Close(like)
	}
	w, name, err := create(d, dest, like < 0 && !o.Private, o.Alone)
	if err != nil {
		return err
	}
	defer func() {
		w.Close()
		if name != "" {
			d.Remove(name)
		}
	}()
	if err := write(w); err != nil {
		return err
	}
	if like >= 0 {
		if err := copyMeta(w, like, o); err != nil {
			return err
		}
	}
	if o.KeepLinks && old != nil && old.Nlink > 1 {
		return overwrite(d, dest, w, !o.NoSync)
	}
	if !o.NoSync {
		if err := w.Sync(); err != nil {
			return err
		}
	}
	if name == "" {
		if name, err = link(w, d, dest, o.Alone); err != nil {
			return err
		}
	}
	if err := d.Rename(name, dest); err != nil {
		return err
	}
	name = ""
	return nil
}

// create opens the file to write: nameless if the file system allows, else with
// a name of its own. When the umask is to decide the mode (plain), it is asked
// by creating with 0777 or 0666 as compilers and linkers do.
func create(d *safefile.Dir, dest string, plain, alone bool) (*os.File, string, error) {
	mode := uint32(0o600)
	if plain {
		mode = 0o666
	}
	fd, err := unix.Openat(d.Fd(), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, mode)
	if err == nil {
		return os.NewFile(uintptr(fd), filepath.Join(d.Name(), "(new)")), "", nil
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) {
		return nil, "", &fs.PathError{Op: "create", Path: d.Name(), Err: err}
	}
	name := tempName(dest, alone)
	err = fresh(d.Fd(), name, alone, func() (err error) {
		fd, err = unix.Openat(d.Fd(), name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, mode)
		return err
	})
	if err != nil {
		return nil, "", &fs.PathError{Op: "create", Path: d.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(d.Name(), name)), name, nil
}

// tempName is a name for a moment beside dest: a random one, or with alone always the same.
func tempName(dest string, alone bool) string {
	n := rand.Uint64() // a name that is taken is refused by the kernel, so this will do
	if alone {
		h := fnv.New64a()
		io.WriteString(h, filepath.Base(dest))
		n = h.Sum64()
	}
	return fmt.Sprintf(".fentry-%016x", n)
}

// fresh creates the file name in the directory at. A file that is in the way is what a
// killed process has left if the caller is alone.
func fresh(at int, name string, alone bool, create func() error) error {
	err := create()
	if alone && errors.Is(err, unix.EEXIST) {
		if err := unix.Unlinkat(at, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return &fs.PathError{Op: "remove", Path: name, Err: err}
		}
		err = create()
	}
	return err
}

// link gives a nameless file a name.
func link(f *os.File, d *safefile.Dir, dest string, alone bool) (string, error) {
	name := tempName(dest, alone)
	err := fresh(d.Fd(), name, alone, func() error {
		return linkFile(int(f.Fd()), d.Fd(), name)
	})
	if err != nil {
		return "", &fs.PathError{Op: "link", Path: name, Err: err}
	}
	return name, nil
}

// copyMeta gives f the owner, mode, extended attributes and, if asked, the modification time of the open file like.
// Changing the owner clears the set-ID bits and capabilities, so it comes first.
func copyMeta(f *os.File, like int, o Options) error {
	var st unix.Stat_t
	if err := unix.Fstat(like, &st); err != nil {
		return &fs.PathError{Op: "stat", Err: err}
	}
	if int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid() {
		// Only root may give files away; others get a file of their own.
		if err := f.Chown(int(st.Uid), int(st.Gid)); err != nil {
			o.DropSetID = true
		}
	}
	mode := st.Mode & 0o7777
	if o.DropSetID {
		mode &^= unix.S_ISUID | unix.S_ISGID
	}
	if err := unix.Fchmod(int(f.Fd()), mode); err != nil {
		return &fs.PathError{Op: "chmod", Path: f.Name(), Err: err}
	}
	if err := copyXattrs(f, fdPath(like), o); err != nil {
		return err
	}
	if o.KeepTime {
		tv := unix.NsecToTimeval(st.Mtim.Nano())
		if err := unix.Futimes(int(f.Fd()), []unix.Timeval{tv, tv}); err != nil {
			return &fs.PathError{Op: "utimes", Path: f.Name(), Err: err}
		}
	}
	return nil
}

// dropACL removes the access control list a new file has from its directory's default. Looking for one takes less than
// removing what is not there.
func dropACL(fd int) {
	if n, err := unix.Flistxattr(fd, nil); n > 0 || err != nil {
		unix.Fremovexattr(fd, "system.posix_acl_access")
	}
}

// copyXattrs copies extended attributes. Signatures over the contents
// (security.ima, security.evm) would be wrong and are left out; attributes this
// user may not set are left out too.
func copyXattrs(f *os.File, like string, o Options) error {
	dropACL(int(f.Fd()))
	n, err := unix.Listxattr(like, nil)
	if err != nil || n == 0 {
		return nil // no attributes, or a file system without them
	}
	buf := make([]byte, n)
	if n, err = unix.Listxattr(like, buf); err != nil {
		return &fs.PathError{Op: "listxattr", Path: like, Err: err}
	}
	for _, name := range strings.Split(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		if name == "security.ima" || name == "security.evm" || o.DropSetID && name == "security.capability" {
			continue
		}
		size, err := unix.Getxattr(like, name, nil)
		if err != nil {
			continue
		}
		val := make([]byte, size)
		if size > 0 {
			if size, err = unix.Getxattr(like, name, val); err != nil {
				continue
			}
		}
		err = unix.Fsetxattr(int(f.Fd()), name, val[:size], 0)
		if err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EACCES) {
			return &fs.PathError{Op: "setxattr " + name, Path: f.Name(), Err: err}
		}
	}
	return nil
}
