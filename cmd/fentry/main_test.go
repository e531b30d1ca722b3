package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/session"
)

// TestMain makes "fentry" a command of the scripts, and of tests that set FENTRY_TEST_MAIN: the test binary itself.
func TestMain(m *testing.M) {
	if os.Args[0] == session.KeeperName {
		main()
	}
	switch os.Getenv("FENTRY_TEST_MAIN") {
	case "":
	case "peak":
		os.Exit(peakMain())
	default:
		main()
	}
	testscript.Main(watched{m}, map[string]func(){"fentry": main})
}

// watched are the tests, none of which may go on for ever.
type watched struct{ *testing.M }

func (w watched) Run() int { return testtool.Main(w.M) }

// TestScripts runs testdata/script/*.txtar. A script states one behaviour and
// skips itself, naming tool and package, where it needs a tool that is missing.
func TestScripts(t *testing.T) {
	demo, err := filepath.Abs("demo")
	if err != nil {
		t.Fatal(err)
	}
	ia32 := runsIA32(t)
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/script",
		RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("DEMO", demo)
			env.Setenv("LC_ALL", "C.UTF-8")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"maketrace": maketrace,
			"serveview": serveview,
			"status":    status,
		},
		Condition: func(name string) (bool, error) {
			if name != "ia32" {
				return false, fmt.Errorf("there is no condition %q", name)
			}
			return ia32, nil
		},
		UpdateScripts: os.Getenv("FENTRY_UPDATE") != "",
	})
}

// runsIA32 tells whether the kernel runs 32-bit programs of x86, which it can be built or told not to.
func runsIA32(t *testing.T) bool {
	const base, size = 0x08048000, 52 + 32
	code := []byte("\xb8\x01\x00\x00\x00\x31\xdb\xcd\x80") // mov $1, %eax; xor %ebx, %ebx; int $0x80: exit(0)
	header := elf.Header32{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS32), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_386), Version: uint32(elf.EV_CURRENT), Entry: base + size,
		Phoff: 52, Ehsize: 52, Phentsize: 32, Phnum: 1,
	}
	segment := elf.Prog32{
		Type: uint32(elf.PT_LOAD), Vaddr: base, Paddr: base, Filesz: size + uint32(len(code)), Memsz: size + uint32(len(code)),
		Flags: uint32(elf.PF_R | elf.PF_X), Align: 0x1000,
	}
	var b bytes.Buffer
	for _, part := range []any{header, segment, code} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	prog := filepath.Join(t.TempDir(), "ia32")
	if err := os.WriteFile(prog, b.Bytes(), 0o700); err != nil {
		t.Fatal(err)
	}
	return exec.Command(prog).Run() == nil
}

// status is the script command "status N program args...": the program must
// end with exit status N.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N program [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// link makes the test binary the command fentry of a directory.
func link(t *testing.T, dir string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "fentry")); err != nil {
		t.Fatal(err)
	}
}

// fentryRun runs fentry in dir and returns what it printed; status is what it must end with.
func fentryRun(t *testing.T, dir string, status int, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(dir, "fentry"), args...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != status {
		t.Fatalf("fentry %s: %v, want status %d\n%s%s", strings.Join(args, " "), err, status, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

// What the command table says of each command is so, and the only one that is made for a command line is the one that it names.
func TestCommandTable(t *testing.T) {
	none := &app{lookupEnv: func(string) (string, bool) { return "", false }}
	all := newRootCmd(none, "")
	for i, c := range commands() {
		if cmd := all.Commands()[i]; cmd.Name() != c.name || cmd.GroupID != c.group {
			t.Errorf("%s (%s) is %s (%s)", c.name, c.group, cmd.Name(), cmd.GroupID)
		}
		want := c.name
		if c.others {
			want = ""
		}
		if only := none.only([]string{c.name, "-h"}); only != want {
			t.Errorf("%s: only %q is made", c.name, only)
		}
	}
	if only := newRootCmd(none, "record"); len(only.Commands()) != 1 {
		t.Errorf("record: %d commands are made", len(only.Commands()))
	}
	options := &app{lookupEnv: func(name string) (string, bool) { return "--no-inherit", name == "FENTRY_OPTS" }}
	for _, args := range [][]string{nil, {"-q", "record"}, {"help"}, {"nothing"}, {"__complete", "record"}} {
		if only := none.only(args); only != "" {
			t.Errorf("%q: only %q is made", args, only)
		}
	}
	if only := options.only([]string{"report"}); only != "" {
		t.Errorf("FENTRY_OPTS: only %q is made", only)
	}
}
