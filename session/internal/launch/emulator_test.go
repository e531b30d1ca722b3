//go:build linux

package launch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/machine"
	"github.com/fentry-dev/fentry/internal/runfile"
)

func TestFindEmulator(t *testing.T) {
	guest := machine.All[1]
	host, _ := machine.Host()
	if host == guest {
		guest = machine.All[0]
	}
	m := guest.ELF
	dir := t.TempDir()
	for _, name := range []string{"qemu-aarch64-static", "qemu-x86_64-static"} {
		if err := runfile.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "root/lib"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "root/lib/ld.so"), nil, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	static := filepath.Join(dir, guest.Emulator()+"-static")
	check := func(interp string, want []string, wantErr string) {
		t.Helper()
		got, err := FindEmulator(m, interp)
		switch {
		case wantErr != "":
			if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), wantErr) {
				t.Errorf("%q: %v, want %q", interp, err, wantErr)
			}
		case err != nil || strings.Join(got, " ") != strings.Join(want, " "):
			t.Errorf("%q: %q, %v; want %q", interp, got, err, want)
		}
	}
	check("", []string{static}, "")
	check(filepath.Join(dir, "root/lib/ld.so"), []string{static}, "") // the machine's own path
	check("/lib/no-such-loader", nil, "apt-get install "+guest.Libraries())
	t.Setenv("QEMU_LD_PREFIX", filepath.Join(dir, "root"))
	check("/lib/ld.so", []string{static}, "")
	check("/lib/no-such-loader", nil, filepath.Join(dir, "root/lib/no-such-loader"))
	if got, err := FindEmulator(host.ELF, "/lib/no-such-loader"); got != nil || err != nil {
		t.Errorf("this machine: %q, %v", got, err)
	}
	t.Setenv("PATH", t.TempDir())
	check("", nil, "apt-get install qemu-user")
}
