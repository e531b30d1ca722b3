//go:build linux

package session

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/launch"
	"github.com/fentry-dev/fentry/session/internal/tracee"
)

// guestMachine is a machine whose programs do not run here by themselves.
func guestMachine(t testing.TB) (m elf.Machine, cc string) {
	t.Helper()
	switch runtime.GOARCH {
	case "amd64":
		return elf.EM_AARCH64, "aarch64-linux-gnu-gcc"
	case "arm64":
		return elf.EM_X86_64, "x86_64-linux-gnu-gcc"
	}
	t.Skip("nothing is traced on this machine")
	return 0, ""
}

// buildGuest compiles testdata/guest.c for the other machine twice: what shall be run, and
// what is to be run in place of it.
func buildGuest(t testing.TB, flags ...string) (emulator []string, path, copied string) {
	t.Helper()
	m, cc := guestMachine(t)
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("%s is missing (package %s)", cc, strings.Replace("gcc-"+strings.TrimSuffix(cc, "-gcc"), "_", "-", 1))
	}
	dir := t.TempDir()
	path, copied = filepath.Join(dir, "guest"), filepath.Join(t.TempDir(), "copy")
	for out, answer := range map[string]string{path: "-DANSWER=1", copied: "-DANSWER=2"} {
		argv := append([]string{"-O2", "-Wall", answer, "-o", out, "testdata/guest.c"}, flags...)
		if b, err := exec.Command(cc, argv...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cc, err, b)
		}
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	interp := ""
	if s := f.Section(".interp"); s != nil {
		b, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		interp = strings.TrimRight(string(b), "\x00")
	}
	emulator, err = launch.FindEmulator(m, interp)
	if errors.Is(err, launch.ErrNotFound) {
		t.Skip(err)
	}
	if err != nil || len(emulator) == 0 {
		t.Fatalf("%q, %v", emulator, err)
	}
	return emulator, path, copied
}

// A program under an emulator is the patched copy, and sees nothing of that: path, name,
// descriptors and signals are as under the emulator alone.
func TestEmulator(t *testing.T) {
	for _, flags := range [][]string{{"-pie", "-fPIE"}, {"-static"}} {
		t.Run(flags[0], func(t *testing.T) {
			emulator, path, copied := buildGuest(t, flags...)
			for _, tt := range []struct {
				name, shell string
				argv        []string
			}{
				{"plain", "", []string{path, "a", "b c"}},
				{"signals", "trap '' TERM USR2; ", []string{path}},
				{"killed", "", []string{path, "kill"}},
				{"relative", "cd " + filepath.Dir(path) + "; ", []string{"./guest"}},
				{"by name", "PATH=$PATH:" + filepath.Dir(path) + "; ", []string{"guest"}},
			} {
				t.Run(tt.name, func(t *testing.T) {
					t.Parallel()
					target := tt.argv[0]
					alone := append([]string(nil), emulator...)
					if tt.name == "by name" {
						alone, target = append(alone, "-0", tt.argv[0]), path
					}
					alone = append(append(alone, target), tt.argv[1:]...)
					cmd := exec.Command("sh", append([]string{"-c", tt.shell + `exec "$@"`, "sh"}, alone...)...)
					want, _ := cmd.Output()
					if !strings.HasPrefix(string(want), "answer 1\nexe "+path+"\n") {
						t.Fatalf("untraced: %q", want)
					}
					status := cmd.ProcessState.ExitCode()
					if tt.name == "killed" {
						status = 100 + 10 // as the recorder of the tests tells of SIGUSR1
					}
					r := recorderCmd{Memory: anyMemory(), Copy: copied, Emulator: emulator, prefix: []string{"sh", "-c", tt.shell + `exec "$@"`, "sh"}}
					x := r.run(t, tt.argv...)
					if x.code != status || !x.res.Copied || x.res.Injected || x.stderr != "" {
						t.Errorf("status %d, want %d; %+v: %s", x.code, status, x.res, x.stderr)
					}
					if got := strings.Replace(x.stdout, "answer 2", "answer 1", 1); got != string(want) || got == x.stdout {
						t.Errorf("%q, untraced %q", x.stdout, want)
					}
				})
			}
		})
	}
}

// Without ptrace the copy has a path of its own, beside the program if that can be, which
// goes with the session.
func TestEmulatorNoPtrace(t *testing.T) {
	emulator, path, copied := buildGuest(t)
	tmp := t.TempDir()
	link := filepath.Join("/proc/self/cwd", filepath.Base(path)) // no place for a file
	for _, tt := range []struct{ run, exe string }{
		{path, filepath.Dir(path) + "/.guest.fentry-"},
		{link, tmp + "/fentry-"},
	} {
		shell := "exec \"$@\""
		if tt.run == link {
			// A directory that nobody, not even root, makes files in.
			shell = "mount --bind -o ro . . && cd . && cd \"$PWD\" && " + shell
			if exec.Command("unshare", "-m", "true").Run() != nil {
				continue // not root
			}
		}
		r := recorderCmd{Memory: anyMemory(), Copy: copied, Emulator: emulator, NoPtrace: true,
			prefix: []string{"unshare", "-m", "env", "-C", filepath.Dir(path), "TMPDIR=" + tmp, "sh", "-c", shell, "sh"}}
		if tt.run != link {
			r.prefix = r.prefix[2:]
		}
		x := r.run(t, tt.run, "a")
		if x.code != 7 || !x.res.Copied {
			t.Errorf("status %d, %+v: %s", x.code, x.res, x.stderr)
		}
		if !strings.HasPrefix(x.stdout, "answer 2\nexe "+tt.exe) || !strings.Contains(x.stdout, "\narg "+tt.run+"\narg a\n") {
			t.Errorf("%q", x.stdout)
		}
		for dir, want := range map[string]int{tmp: 0, filepath.Dir(path): 1} {
			if left, err := os.ReadDir(dir); err != nil || len(left) != want {
				t.Errorf("left behind: %v, %v", left, err)
			}
		}
	}
}

// An emulator can be a script that executes the emulator.
func TestEmulatorScript(t *testing.T) {
	emulator, path, copied := buildGuest(t)
	script := filepath.Join(t.TempDir(), "emulate")
	if err := runfile.WriteFile(script, []byte("#!/bin/sh\nexec "+strings.Join(emulator, " ")+" \"$@\"\n")); err != nil {
		t.Fatal(err)
	}
	r := recorderCmd{Memory: anyMemory(), Copy: copied, Emulator: []string{script}}
	if x := r.run(t, path); x.code != 7 || x.stderr != "" || !strings.HasPrefix(x.stdout, "answer 2\nexe "+path+"\n") {
		t.Errorf("status %d, %q: %s", x.code, x.stdout, x.stderr)
	}
}

// An untraced program runs as it is, and errors of the emulator are passed on.
func TestEmulatorUntraced(t *testing.T) {
	emulator, path, _ := buildGuest(t)
	r := recorderCmd{Emulator: emulator}
	x := r.run(t, path)
	if x.code != 7 || x.res.Copied || !strings.HasPrefix(x.stdout, "answer 1\n") {
		t.Errorf("status %d, %q: %s", x.code, x.stdout, x.stderr)
	}
	r = recorderCmd{Memory: anyMemory(), Copy: path, Emulator: []string{"false"}}
	if x := r.run(t, path); x.code != 1 || x.stdout != "" || !strings.Contains(x.stderr, path+": false has ended without opening it") {
		t.Errorf("status %d, %q: %s", x.code, x.stdout, x.stderr)
	}
	r = recorderCmd{Memory: anyMemory(), Copy: path, Emulator: []string{"no-such-emulator"}}
	if x := r.run(t, path); x.code != 200 || !strings.Contains(x.stderr, "no-such-emulator: command not found") {
		t.Errorf("status %d: %s", x.code, x.stderr)
	}
}

// anyMemory is a plan that makes a program a traced one; under an emulator nothing of it is used.
func anyMemory() *patch.Memory {
	return &patch.Memory{RX: make([]byte, tracee.PageSize), RXAddr: 1 << 20, Entry: 1 << 20}
}
