// Command recorder runs a session for the tests, in a process of its own: what a
// program inherits from the process that starts it, and signals, cannot be
// tested from inside of the test.
//
//	recorder OPTIONS.json PROGRAM [args...]
//
// It writes the result to the file named in the options and ends with status
// 200 when Run fails, else with the program's exit status, or 100 and the number
// of the signal that killed it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

type options struct {
	Path     string
	Dir      string
	Buffer   int64
	Policy   trace.Policy
	Compress session.Compression
	NoPtrace bool
	Profile  bool
	Memory   *patch.Memory
	Copy     string // file to give as patched copy
	Emulator []string
	Library  map[string]string // by the base name of a library, the file that takes its place
	Result   string
	Hang     string // what never returns: "symbols", "log"
}

func main() {
	b, err := os.ReadFile(os.Args[1])
	if err != nil {
		fail(err)
	}
	var o options
	if err := json.Unmarshal(b, &o); err != nil {
		fail(err)
	}
	path := o.Path
	if path == "" {
		if path, err = session.LookPath(os.Args[2]); err != nil {
			fail(err)
		}
	}
	so := session.Options{
		Path: path, Args: os.Args[2:], Dir: o.Dir, Buffer: o.Buffer, Policy: o.Policy, Compress: o.Compress,
		NoPtrace: o.NoPtrace, Emulator: o.Emulator, Profile: o.Profile,
		Logf: func(format string, args ...any) { fmt.Fprintf(os.Stderr, "recorder: "+format+"\n", args...) },
	}
	if o.Hang == "log" {
		so.Logf = func(string, ...any) { fmt.Fprintln(os.Stderr, "hangs"); time.Sleep(time.Hour) }
	}
	so.Symbols = func(im session.Image, w io.Writer) error {
		if o.Hang == "symbols" {
			fmt.Fprintln(os.Stderr, "hangs")
			for {
				time.Sleep(time.Hour)
			}
		}
		_, err := fmt.Fprintf(w, "# path: %s\n", im.Path)
		return err
	}
	if o.Library != nil {
		so.Library = library(o.Library)
	}
	if o.Memory != nil {
		so.Prepare = func(string) (*patch.Memory, error) { return o.Memory, nil }
	}
	if o.Copy != "" {
		so.PatchedCopy = func(_ string, f *os.File) error {
			b, err := os.ReadFile(o.Copy)
			if err == nil {
				_, err = f.Write(b)
			}
			return err
		}
	}
	res, err := session.Run(context.Background(), so)
	if err != nil {
		fail(err)
	}
	if o.Result != "" {
		var self syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &self)
		out := struct {
			session.Result
			CPU int64 // ns that this process took
		}{res, self.Utime.Nano() + self.Stime.Nano()}
		if b, err = json.Marshal(out); err == nil {
			err = os.WriteFile(o.Result, b, 0o666)
		}
		if err != nil {
			fail(err)
		}
	}
	switch {
	case !res.Ended:
		os.Exit(199)
	case res.Status.Signaled():
		os.Exit(100 + int(res.Status.Signal()))
	}
	os.Exit(res.Status.ExitStatus())
}

// library gives libraries what the options say, and says so.
func library(with map[string]string) func(string, *os.File) *os.File {
	open := make(map[string]*os.File)
	return func(path string, f *os.File) *os.File {
		real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		if err != nil {
			fail(err)
		}
		name := with[filepath.Base(real)]
		if name == "" {
			return nil
		}
		if open[name] == nil {
			if open[name], err = os.Open(name); err != nil {
				fail(err)
			}
		}
		fmt.Fprintf(os.Stderr, "%s -> %s\n", path, real)
		return open[name]
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "recorder:", err)
	os.Exit(200)
}
