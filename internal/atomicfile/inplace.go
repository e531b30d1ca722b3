package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/safefile"
)

// A file with several names can only be written where it is, and then an error in the middle, such as a full disk,
// would leave half of each. So space for what the file will be is allocated first, when nothing has been written; and
// because not every file system allocates ahead, or keeps its word when blocks are copied on writing, the old contents
// are kept until the new ones are there, and put back if they cannot be.

// overwrite replaces the contents of the existing file at dest by those of src, from its beginning.
func overwrite(d *safefile.Dir, dest string, src *os.File, sync bool) (err error) {
	out, err := d.OpenFile(dest, os.O_RDWR)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	old, err := io.ReadAll(out)
	if err != nil {
		return err
	}
	st, err := src.Stat()
	if err != nil {
		return err
	}
	if _, err := src.Seek(0, 0); err != nil {
		return err
	}
	if st.Size() > 0 {
		_, err := retry(func() (int, error) {
			return 0, unix.Fallocate(int(out.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, st.Size())
		})
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
			return &os.PathError{Op: "allocate", Path: dest, Err: err}
		}
	}
	if _, err := out.Seek(0, 0); err != nil {
		return err
	}
	if err := copyOver(out, src, sync); err != nil {
		return errors.Join(err, restore(out, old))
	}
	return nil
}

// copyOver makes src the contents of out.
func copyOver(out, src *os.File, sync bool) error {
	n, err := out.ReadFrom(src)
	if err != nil {
		return err
	}
	if err := out.Truncate(n); err != nil {
		return err
	}
	if sync {
		return out.Sync()
	}
	return nil
}

// restore puts back what a file was.
func restore(out *os.File, old []byte) error {
	_, err := out.WriteAt(old, 0)
	if err == nil {
		err = out.Truncate(int64(len(old)))
	}
	if err != nil {
		return fmt.Errorf("the old contents cannot be put back: %w", err)
	}
	return nil
}
