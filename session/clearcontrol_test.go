//go:build linux

package session

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestClearControl: only sockets go at which nobody listens, for processes that are gone, for some time.
func TestClearControl(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	gone, here := ended.Process.Pid, os.Getpid()
	listen := func(name string, left bool) {
		t.Helper()
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		if l.SetUnlinkOnClose(false); left {
			l.Close()
		} else {
			t.Cleanup(func() { l.Close() })
		}
	}
	left, young, mine, other := fmt.Sprintf("%d.sock", gone), "4194305.sock", fmt.Sprintf("%d.sock", here), "4194304.sock"
	listen(left, true)
	listen(young, true) // whose number no process can have
	listen(mine, true)
	listen(other, false)
	file := "4194303.sock"
	if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{left, mine, other, file} {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	clearControl(dir)
	for name, want := range map[string]bool{left: false, young: true, mine: true, other: true, file: true} {
		if _, err := os.Lstat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
