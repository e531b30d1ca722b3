package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/export/formats"
	"github.com/fentry-dev/fentry/internal/safefile"
)

// What others can write in, as in /tmp or a directory of theirs, can be another directory at any moment. So directories
// are opened once, by names below the directory that is open, and files are made in what is open.

// writeDir makes the directory under another name, and gives it its own when it is complete.
func writeDir(out string, f *formats.Format, src *export.Source) (sum export.Summary, err error) {
	if f.Adds {
		return addTo(out, f, src)
	}
	if _, err := os.Lstat(out); err == nil {
		return sum, fmt.Errorf("%s: exists; a directory is not replaced", out)
	}
	in, name, err := safefile.Target(out)
	if err != nil {
		return sum, err
	}
	defer in.Close()
	tmp := fmt.Sprintf(".fentry-%016x", rand.Uint64())
	dir, err := in.Mkdir(tmp)
	if err != nil {
		return sum, err
	}
	defer dir.Close()
	root, err := dir.Root()
	if err != nil {
		return sum, err
	}
	defer root.Close()
	if sum, err = writeBelow(root, out, f, src); err == nil {
		err = unix.Renameat2(in.Fd(), tmp, in.Fd(), name, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EINVAL) { // the file system does not have it
			err = in.Rename(tmp, name) // replaces nothing but an empty directory
		}
	}
	if err != nil {
		err = errors.Join(err, removeAll(in, tmp))
	}
	return sum, err
}

// removeAll removes a directory in another one, with what is in it.
func removeAll(in *safefile.Dir, name string) error {
	root, err := in.Root()
	if err != nil {
		return err
	}
	defer root.Close()
	return root.RemoveAll(name)
}

// addTo adds files to a directory, which is made if it is not there. A symbolic link to one is followed if it is this
// user's or root's.
func addTo(out string, f *formats.Format, src *export.Source) (sum export.Summary, err error) {
	if base := filepath.Base(out); base == "." || base == ".." || base == "/" {
		dir, err := safefile.OpenDir(out)
		if err != nil {
			return sum, err
		}
		defer dir.Close()
		return addToDir(dir, out, f, src)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o777); err != nil {
		return sum, err
	}
	in, name, err := safefile.Target(out)
	if err != nil {
		return sum, err
	}
	defer in.Close()
	made := unix.Mkdirat(in.Fd(), name, 0o777)
	if made != nil && !errors.Is(made, unix.EEXIST) {
		return sum, &fs.PathError{Op: "mkdir", Path: out, Err: made}
	}
	dir, err := in.OpenDir(name)
	if err != nil {
		return sum, err
	}
	defer dir.Close()
	if sum, err = addToDir(dir, out, f, src); err != nil && made == nil {
		_ = unix.Unlinkat(in.Fd(), name, unix.AT_REMOVEDIR) // not if others have put something there
	}
	return sum, err
}

// addToDir adds files to a directory that is open.
func addToDir(dir *safefile.Dir, out string, f *formats.Format, src *export.Source) (sum export.Summary, err error) {
	root, err := dir.Root()
	if err != nil {
		return sum, err
	}
	defer root.Close()
	return writeBelow(root, out, f, src)
}

// writeBelow writes the files of a directory. Errors name them by the path that was asked for, not by the way that leads to
// them.
func writeBelow(root *os.Root, out string, f *formats.Format, src *export.Source) (export.Summary, error) {
	sum, err := f.WriteDir(root, src)
	var pe *fs.PathError
	if !errors.As(err, &pe) {
		return sum, err
	}
	below, ok := strings.CutPrefix(pe.Path, root.Name()+"/")
	if !ok && strings.HasSuffix(pe.Op, "at") && filepath.IsLocal(pe.Path) { // of root itself: mkdirat
		below, ok = pe.Path, true
	}
	if ok {
		err = &fs.PathError{Op: pe.Op, Path: filepath.Join(out, below), Err: pe.Err}
	}
	return sum, err
}
