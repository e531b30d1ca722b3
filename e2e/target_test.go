package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// A target is a machine that programs are compiled for and run on. The zero value is this machine.
type target struct {
	triple   string   // of its compilers
	machine  string   // as in directives, amd64 when empty
	emulator []string // in front of programs that run here
}

var arm64 = target{triple: "aarch64-linux-gnu", machine: "arm64", emulator: []string{"qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"}}

func (tg target) name() string {
	if tg.machine == "" {
		return "amd64"
	}
	return tg.machine
}

// compiler is the command of a compiler for the machine: gcc, g++, clang, clang++ or musl-gcc.
func (tg target) compiler(t testing.TB, name string) []string {
	t.Helper()
	if tg.triple == "" {
		testtool.Need(t, name)
		return []string{name}
	}
	if strings.HasPrefix(name, "clang") {
		testtool.Need(t, name, tg.triple+"-g++") // whose linker and libraries it takes
		return []string{name, "--target=" + tg.triple}
	}
	testtool.Need(t, tg.triple+"-"+name)
	return []string{tg.triple + "-" + name}
}

// need skips the test where the machine's programs cannot run.
func (tg target) need(t testing.TB) {
	t.Helper()
	if len(tg.emulator) > 0 {
		testtool.Need(t, tg.emulator[0])
	}
}

// emulation is what runs programs of a kind of sites, nothing for those of this machine.
func (k kind) emulation() []string {
	e := k.target.emulator
	if len(e) > 0 && k.cpu != "" {
		e = append(append([]string(nil), e...), "-cpu", k.cpu)
	}
	return e
}

// command is argv as it has to be run.
func (k kind) command(argv ...string) []string {
	return append(append([]string(nil), k.emulation()...), argv...)
}

// emulatorOptions have fentry record run programs by an emulator; none, if that is none.
func emulatorOptions(emulator []string) []string {
	if len(emulator) == 0 {
		return nil
	}
	return []string{"--emulator", strings.Join(emulator, " ")}
}

// recordOptions are what fentry record has to be told of the machine: nothing, where it finds by itself what to do.
func (k kind) recordOptions() (options []string) {
	if k.plain { // all calls are to be there
		options = append(options, "--overhead", "no")
	}
	if k.cpu != "" {
		options = append(options, emulatorOptions(k.emulation())...)
	}
	return options
}

// The kernel starts programs of another machine only with binfmt_misc, which a test cannot rely on. So a program that is to be executed by
// another one stands beside a script of its name that starts the emulator.
func (k kind) executable(dir, name string) string {
	if len(k.target.emulator) > 0 {
		name += ".bin"
	}
	return filepath.Join(dir, name)
}

// makeExecutable makes a program that was built one that others can execute.
func (k kind) makeExecutable(t testing.TB, dir, name string) {
	t.Helper()
	file, path := filepath.Join(dir, name), k.executable(dir, name)
	if path == file {
		return
	}
	if err := os.Rename(file, path); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %s -0 \"$0\" \"$0.bin\" \"$@\"\n", strings.Join(k.emulation(), " "))
	if err := runfile.WriteFile(file, []byte(script)); err != nil {
		t.Fatal(err)
	}
}
