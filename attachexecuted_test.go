//go:build linux

package fentry_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// A process that executes another program while it is found out what can be recorded of the first one is recorded all the
// same: what was found out is of the second one then.
func TestAttachExecuted(t *testing.T) {
	if !session.CanFollow() {
		t.Skip("processes are attached to on x86-64")
	}
	testtool.Need(t, "gcc")
	first, then := buildFile(t, "testdata/becomes.c"), buildFile(t, "testdata/grows.c")
	// begin begins a process that executes one program after the other each time that it has been planned, and next the last one.
	begin := func(t *testing.T, times int) (*exec.Cmd, *controlled, fentry.Options) {
		cmd := exec.Command(first, append(slices.Repeat([]string{first}, times-1), then)...)
		c := startTold(t, cmd)
		testtool.AwaitReady(t, cmd.Process.Pid)
		left := times
		o := fentry.Options{Policy: trace.PolicyDrop, Overhead: -1}
		o.Logf = func(format string, args ...any) {
			t.Logf(format, args...)
			if left == 0 || !strings.Contains(format, "as it runs already") {
				return
			}
			left--
			arguments := func() string {
				b, err := os.ReadFile(session.ProcessDir(cmd.Process.Pid) + "/cmdline")
				if err != nil {
					t.Error(err)
				}
				return string(b)
			}
			was := arguments()
			fmt.Fprintln(c.in)
			for end := time.Now().Add(testtool.Patience); arguments() == was && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
		}
		return cmd, c, o
	}
	end := func(t *testing.T, cmd *exec.Cmd, c *controlled) {
		t.Helper()
		c.do("1")
		c.in.Close()
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 5 {
			t.Error(err)
		}
	}
	for _, times := range []int{1, 3} {
		t.Run(fmt.Sprint(times), func(t *testing.T) {
			cmd, c, o := begin(t, times)
			rec := recordOne(t, cmd.Process.Pid, o)
			if got := c.line(); got != "ready" {
				t.Fatal(got)
			}
			c.do("3")
			if _, calls := rec.end(t); calls["touch"] < 3 {
				t.Error(calls)
			}
			end(t, cmd, c)
		})
	}
	t.Run("on and on", func(t *testing.T) {
		cmd, c, o := begin(t, 20)
		o.Dir = filepath.Join(t.TempDir(), "fentry.data")
		_, err := fentry.Attach(t.Context(), []int{cmd.Process.Pid}, o)
		if !errors.Is(err, session.ErrExecuted) {
			t.Error(err)
		}
		if _, err := os.Stat(o.Dir); !errors.Is(err, fs.ErrNotExist) {
			t.Error("the failed recording has left its directory")
		}
		for end := time.Now().Add(testtool.Patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
			exe, err := os.Readlink(session.ProcessDir(cmd.Process.Pid) + "/exe")
			if err != nil {
				t.Fatal(err)
			}
			if exe == then {
				break
			}
			fmt.Fprintln(c.in)
		}
		if got := c.line(); got != "ready" {
			t.Fatal(got)
		}
		for c.out.Scan() && c.out.Text() == "done" {
			break
		}
		end(t, cmd, c)
	})
}
