package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/session"
)

// openControlPipe opens what --control names; nil: nothing.
func openControlPipe(given string) (*session.ControlPipe, error) {
	if given == "" {
		return nil, nil
	}
	kind, names, _ := strings.Cut(given, ":")
	commands, answers, both := strings.Cut(names, ",")
	open := map[string]func(string) (*os.File, error){"fifo": openFIFO, "fd": openFD}[kind]
	if open == nil || commands == "" || both && answers == "" {
		return nil, errors.New("it is fifo:COMMANDS[,ANSWERS], or fd:N[,N]")
	}
	var p session.ControlPipe
	var err error
	if p.Commands, err = open(commands); err == nil && both {
		p.Answers, err = open(answers)
	}
	if err != nil {
		return nil, err
	}
	return &p, nil
}

// openFIFO opens a FIFO so that neither this nor who is at its other end waits for the other, or is told that nobody is
// there.
func openFIFO(name string) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return fifo(fd, name)
}

// openFD takes a descriptor that this process was given.
func openFD(number string) (*os.File, error) {
	fd, err := strconv.Atoi(number)
	if err != nil || fd < 0 {
		return nil, fmt.Errorf("%s is no descriptor", number)
	}
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	return fifo(fd, "descriptor "+number)
}

func fifo(fd int, name string) (*os.File, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFIFO {
		err = errors.New("no FIFO, nor a pipe")
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
