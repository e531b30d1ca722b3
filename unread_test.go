//go:build linux

package fentry_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry"
)

// A program that may be executed and not read runs untraced, and that is why.
func TestUnread(t *testing.T) {
	text, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "true")
	if err := os.WriteFile(program, text, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(program, 0o111); err != nil {
		t.Fatal(err)
	}
	defer unprivileged(t)()
	var said messages
	o := fentry.Options{Dir: filepath.Join(dir, "fentry.data")}
	o.Logf = said.logf
	res, err := fentry.Run(t.Context(), exec.Command(program), o)
	if err != nil {
		t.Fatal(err)
	}
	const why = "its file cannot be read"
	if res.Status.ExitStatus() != 0 || res.Untraced != why || !slices.Contains(said.list, program+" runs untraced: "+why) {
		t.Errorf("%+v; %q", res, said.list)
	}
	if s := strings.Join(said.list, "\n"); strings.Contains(s, "libraries") {
		t.Error(s)
	}
}

// unprivileged has this thread ask for the permission of files even if it is root's, until back is called.
func unprivileged(t *testing.T) (back func()) {
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var had [2]unix.CapUserData
	if err := unix.Capget(&header, &had[0]); err != nil {
		t.Fatal(err)
	}
	left := had
	left[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	if err := unix.Capset(&header, &left[0]); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Capset(&header, &had[0]); err != nil {
			t.Fatal(err)
		}
		runtime.UnlockOSThread()
	}
}
