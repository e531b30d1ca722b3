//go:build linux

package fentry

import (
	"errors"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// streams are a command's standard streams and extra files, as os/exec has them: an *os.File is the program's own,
// anything else is behind a pipe that a goroutine serves, and nil is /dev/null.
type streams struct {
	files  []*os.File // the program's, from descriptor 0
	ours   []*os.File // those of files that were opened here
	copied chan error // gets an error from each goroutine that copies output, nil if all went well
	copies int        // how many there are
}

func openStreams(cmd *exec.Cmd) (*streams, error) {
	s := &streams{copied: make(chan error, 2)}
	err := s.input(cmd.Stdin)
	if err == nil {
		err = s.output(cmd.Stdout)
	}
	switch {
	case err != nil:
	case cmd.Stdout != nil && same(cmd.Stdout, cmd.Stderr):
		s.files = append(s.files, s.files[1]) // one pipe, so that one goroutine writes
	default:
		err = s.output(cmd.Stderr)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	s.files = append(s.files, cmd.ExtraFiles...)
	return s, nil
}

// same tells whether both streams are one. Writers of types that cannot be compared are two.
func same(a, b io.Writer) bool {
	defer func() { _ = recover() }()
	return a == b
}

// null adds /dev/null.
func (s *streams) null(flag int) error {
	f, err := os.OpenFile(os.DevNull, flag, 0)
	if err == nil {
		s.add(f)
	}
	return err
}

// add adds a file that is closed here when the program has it.
func (s *streams) add(f *os.File) {
	s.files, s.ours = append(s.files, f), append(s.ours, f)
}

func (s *streams) input(r io.Reader) error {
	if r == nil {
		return s.null(os.O_RDONLY)
	}
	if f, ok := r.(*os.File); ok {
		s.files = append(s.files, f)
		return nil
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return err
	}
	s.add(pr)
	go func() {
		// The program need not read all, and r may have nothing more to give for as long as it likes.
		_, _ = io.Copy(pw, r)
		pw.Close()
	}()
	return nil
}

func (s *streams) output(w io.Writer) error {
	if w == nil {
		return s.null(os.O_WRONLY)
	}
	if f, ok := w.(*os.File); ok {
		s.files = append(s.files, f)
		return nil
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return err
	}
	s.add(pw)
	s.copies++
	go func() {
		_, err := io.Copy(w, pr)
		pr.Close()
		s.copied <- err
	}()
	return nil
}

// fds are the descriptors of the program's files. Go's own files do not block, which few programs expect of theirs, so
// that is changed; this process's standard streams are passed on as they are, for others share them.
func (s *streams) fds() ([]uintptr, error) {
	out := make([]uintptr, len(s.files))
	for i, f := range s.files {
		out[i] = ^uintptr(0) // not open
		if f == nil {
			continue
		}
		c, err := f.SyscallConn()
		if err == nil {
			var set error
			err = c.Control(func(fd uintptr) {
				if out[i] = fd; fd > 2 {
					set = unix.SetNonblock(int(fd), false)
				}
			})
			err = errors.Join(err, set)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// close closes what was opened here: for the program's streams this process is no reader or writer any more.
func (s *streams) close() {
	for _, f := range s.ours {
		f.Close()
	}
	s.ours = nil
}

// wait returns when everything that was written has been copied.
func (s *streams) wait() (err error) {
	for range s.copies {
		if e := <-s.copied; err == nil {
			err = e
		}
	}
	return err
}
