//go:build linux

package fuse

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Options are a mount's.
type Options struct {
	Source string // the device in the list of mounts
	Name   string // what is behind the dot of its type there
}

// Mount mounts a directory on another one. Root calls mount(2); others need the program fusermount3.
func Mount(dir string, root Dir, o Options) (*Server, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	var fd int
	var refused error
	isRoot := os.Geteuid() == 0
	if isRoot {
		fd, refused = mountDirectly(dir, o)
	}
	if !isRoot || errors.Is(refused, unix.EPERM) {
		if fd, err = mountByHelper(dir, o); err == nil {
			refused = nil
		}
	}
	if err = errors.Join(refused, err); err != nil {
		return nil, err
	}
	// It blocks: when nothing is mounted any more, reads return.
	s := newServer(os.NewFile(uintptr(fd), "/dev/fuse"), root, os.Getuid(), os.Getgid())
	s.on = dir
	go s.serve()
	return s, nil
}

// mountDirectly is what root does.
func mountDirectly(dir string, o Options) (fd int, err error) {
	if fd, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return -1, &os.PathError{Op: "open", Path: "/dev/fuse", Err: err}
	}
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,max_read=%d",
		fd, os.Geteuid(), os.Getegid(), mostData)
	if err := unix.Mount(o.Source, dir, "fuse."+o.Name, unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("mount", err)
	}
	return fd, nil
}

// mountByHelper has fusermount3 mount it, which sends the descriptor over a socket.
func mountByHelper(dir string, o Options) (int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socketpair", err)
	}
	defer unix.Close(pair[0])
	theirs := os.NewFile(uintptr(pair[1]), "socket")
	options := fmt.Sprintf("fsname=%s,subtype=%s,nosuid,nodev,max_read=%d", o.Source, o.Name, mostData)
	err = helper([]*os.File{theirs}, "-o", options, "--", dir)
	theirs.Close()
	if err != nil {
		return -1, err
	}
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(pair[0], make([]byte, 16), control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("recvmsg", err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err == nil && len(messages) == 1 {
		if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
			return fds[0], nil
		}
	}
	return -1, errors.New("fusermount3 sends no descriptor")
}

// helper runs fusermount3. The first of the files, if there is one, is where it sends the descriptor.
func helper(files []*os.File, args ...string) error {
	path, err := exec.LookPath("fusermount3")
	if errors.Is(err, exec.ErrNotFound) {
		path, err = exec.LookPath("/bin/fusermount3")
	}
	if err != nil {
		return err
	}
	const first = 3 // of ExtraFiles
	var words bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Stderr = &words
	if len(files) > 0 {
		cmd.ExtraFiles, cmd.Env = files, append(os.Environ(), fmt.Sprintf("_FUSE_COMMFD=%d", first))
	}
	if err := cmd.Run(); err != nil {
		if said := bytes.TrimSpace(words.Bytes()); len(said) > 0 {
			return fmt.Errorf("%w: %s", err, said)
		}
		return fmt.Errorf("fusermount3: %w", err)
	}
	return nil
}

// Unmount unmounts it. While files are open that is not possible: it is tried for a moment, so that who was waiting can
// close them, and then nothing leads there any more, and who still has a file open can use it until it is closed, or this
// process ends. When it is not mounted any more, nothing is done.
func (s *Server) Unmount() error {
	const tries = 8
	var err error
	for pause := 5 * time.Millisecond; ; pause *= 2 {
		select {
		case <-s.done:
			return nil
		default:
		}
		if err = s.unmount(false); err == nil {
			break
		}
		if pause >= 5*time.Millisecond<<(tries-1) {
			return s.unmount(true)
		}
		time.Sleep(pause)
	}
	// The kernel says so at once, unless other namespaces have copies of the mount: they go when the process ends.
	select {
	case <-s.done:
	case <-time.After(time.Second):
	}
	return nil
}

// unmount unmounts it once; lazily: even if files are open.
func (s *Server) unmount(lazily bool) error {
	flags, option := 0, "-u"
	if lazily {
		flags, option = unix.MNT_DETACH, "-uz"
	}
	if os.Geteuid() == 0 {
		err := unix.Unmount(s.on, flags)
		if !errors.Is(err, unix.EPERM) {
			return os.NewSyscallError("umount", err)
		}
	}
	return helper(nil, option, "--", s.on)
}
