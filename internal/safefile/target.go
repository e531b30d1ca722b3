package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links in a row are followed, as in the kernel (path_resolution(7)).
const maxLinks = 40

// Target finds where a file that a user names is to be written: the directory, open, and the file's name in it, which
// is not that of a symbolic link. There need not be such a file yet.
//
// A symbolic link at path is followed if it belongs to this user or to root, else it is an error: who can write in the
// directory, as anybody can in /tmp, could have made the link to have a file of this user's overwritten. The kernel has
// the same rule for links in sticky directories (fs.protected_symlinks), which may be off, and which does not help in a
// directory that is itself the other user's. As in the kernel, links in the middle of a path are followed.
func Target(path string) (*Dir, string, error) {
	d, err := target(path)
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, "", &fs.PathError{Op: "create", Path: path, Err: err}
	}
	return d.dir, d.name, nil
}

type place struct {
	dir  *Dir
	name string
}

func target(path string) (place, error) {
	at := unix.AT_FDCWD
	var p place
	for range maxLinks {
		dir, name := filepath.Split(path)
		if dir == "" {
			dir = "."
		}
		if name == "" || name == "." || name == ".." {
			return place{}, unix.EISDIR
		}
		shown := dir
		if p.dir != nil && !filepath.IsAbs(dir) {
			shown = p.dir.path(dir)
		}
		d, err := openDir(at, dir, filepath.Clean(shown), 0)
		p.dir.Close()
		if err != nil {
			return place{}, err
		}
		p, at = place{d, name}, d.Fd()
		to, err := d.readlink(name)
		if err != nil || to == "" {
			if err != nil {
				d.Close()
			}
			return p, err
		}
		path = to
	}
	p.dir.Close()
	return place{}, unix.ELOOP
}

// readlink returns where a symbolic link leads that may be followed; "": name is not that of a link.
func (d *Dir) readlink(name string) (string, error) {
	fd, err := d.do("open", name, func(dir int) (int, error) {
		return unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	st, err := stat(fd)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", err
	}
	if int(st.Uid) != os.Geteuid() && st.Uid != 0 {
		return "", fmt.Errorf("%s is a symbolic link of another user (%d), which is not followed", d.path(name), st.Uid)
	}
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", b)
	if err != nil {
		return "", err
	}
	to := string(b[:n])
	if to == "" || strings.HasSuffix(to, "/") {
		return "", unix.EISDIR
	}
	return to, nil
}
