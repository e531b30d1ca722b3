//go:build linux

package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// LookPath finds the file execvp would execute for a name: the name itself if it
// holds a slash, else the first executable file of that name in the directories
// of $PATH, where an empty entry is the working directory. The result can be
// relative. The error wraps [ErrNotFound] or [ErrNotExecutable].
func LookPath(name string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("%q: command %w", name, ErrNotFound)
	}
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	path, ok := os.LookupEnv("PATH")
	if !ok {
		path = "/bin:/usr/bin" // as the C library has it
	}
	var denied error
	for _, dir := range strings.Split(path, ":") {
		file := name
		if dir != "" {
			file = dir + "/" + name
		}
		err := executable(file)
		if err == nil {
			if !strings.Contains(file, "/") {
				file = "./" + file
			}
			return file, nil
		}
		if errors.Is(err, ErrNotExecutable) && denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", fmt.Errorf("%s: command %w", name, ErrNotFound)
}

// executable tells whether execve would take a file.
func executable(file string) error {
	fi, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%s: %w", file, ErrNotFound)
	case err != nil:
		return execError(file, err)
	case fi.IsDir():
		return fmt.Errorf("%s: %w: is a directory", file, ErrNotExecutable)
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%s: %w: not a regular file", file, ErrNotExecutable)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS); err != nil {
		return execError(file, err)
	}
	return nil
}

// execError says why a file cannot be executed.
func execError(file string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		// execve also says so of a file whose interpreter is missing.
		if _, serr := os.Stat(file); serr == nil {
			return fmt.Errorf("%s: %w: its interpreter does not exist", file, ErrNotFound)
		}
		return fmt.Errorf("%s: %w", file, ErrNotFound)
	}
	return fmt.Errorf("%s: %w: %w", file, ErrNotExecutable, err)
}

// Errors a caller decides by. Both wrap what the system said.
var (
	// ErrNotFound: there is no such program; a shell's status is 127.
	ErrNotFound = errors.New("not found")
	// ErrNotExecutable: the program cannot be executed; a shell's status is 126.
	ErrNotExecutable = errors.New("not executable")
)
