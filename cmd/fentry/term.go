package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/term"
)

// isTerminal tells whether a stream of the app is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colors decides about colours on a stream: the option first, then NO_COLOR
// (no-color.org), then CLICOLOR_FORCE, then what the stream is.
func (a *app) colors(stream any) bool {
	switch {
	case a.color == "always":
		return true
	case a.color == "never", a.getenv("NO_COLOR") != "":
		return false
	}
	if v := a.getenv("CLICOLOR_FORCE"); v != "" && v != "0" {
		return true
	}
	return isTerminal(stream) && a.getenv("TERM") != "dumb"
}

// paint wraps text in colours, or leaves it alone when they are off.
type paint bool

// SGR parameters (ECMA-48). The eight basic colours follow the user's theme.
const (
	sgrBold   = "1"
	sgrDim    = "2"
	sgrRed    = "31"
	sgrGreen  = "32"
	sgrYellow = "33"
	sgrCyan   = "36"
)

func (p paint) with(sgr, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + sgr + "m" + s + "\x1b[0m"
}

// output is where a command that may print a lot writes: a buffer in front of
// stdout, or of the pager when stdout is a terminal.
type output struct {
	*bufio.Writer
	paint paint
	pager *exec.Cmd
	pipe  io.Closer
	width int // of the terminal in columns; 0: no terminal, lines can be as long as they are

	closed bool
}

// open starts the output of a command. The caller must call close.
func (a *app) open() (*output, error) {
	o := &output{paint: paint(a.colors(a.stdout))}
	a.out = o
	if f, ok := a.stdout.(*os.File); ok && isTerminal(f) {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil {
			o.width = w
		}
	}
	if cmd := a.pagerCommand(); cmd != nil {
		w, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err == nil {
			o.pager, o.pipe = cmd, w
			o.Writer = bufio.NewWriterSize(w, 64<<10)
			return o, nil
		}
		// No pager is no reason not to print.
	}
	o.Writer = bufio.NewWriterSize(a.stdout, 64<<10)
	return o, nil
}

// close flushes and waits for the pager. err is what the command ended with;
// a write to a pager that was left counts as success.
func (o *output) close(err error) error {
	o.closed = true
	if ferr := o.Flush(); err == nil {
		err = ferr
	}
	if o.pager == nil {
		return err
	}
	o.pipe.Close()
	// The status of a pager says nothing about the command's success.
	o.pager.Wait()
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// pagerCommand returns the pager to start, nil for none: FENTRY_PAGER, then
// PAGER, then less. An empty variable and "cat" mean none.
func (a *app) pagerCommand() *exec.Cmd {
	if a.noPager || !isTerminal(a.stdout) || a.getenv("TERM") == "dumb" {
		return nil
	}
	line := "less -FRX"
	for _, name := range []string{"FENTRY_PAGER", "PAGER"} {
		if v, ok := a.lookupEnv(name); ok {
			line = v
			break
		}
	}
	if line == "" || line == "cat" {
		return nil
	}
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Stdout = a.stdout
	cmd.Stderr = a.stderr
	cmd.Env = os.Environ()
	if a.getenv("LESS") == "" {
		// A pager named by the user as plain "less" shall understand colours and
		// give the terminal back when everything fits.
		cmd.Env = append(cmd.Env, "LESS=FRX")
	}
	return cmd
}

// checkGlobals refuses global options that make no sense.
func (a *app) checkGlobals() error {
	switch a.color {
	case "auto", "always", "never":
		return nil
	}
	return fmt.Errorf("--color %q: auto, always or never", a.color)
}
