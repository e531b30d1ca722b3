package e2e

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/record"
)

// What the command recommends for C++ is compiled, linked by each linker, run and traced: with functions that several
// files have, of which a linker drops all but one, and with them what the tables say of the others. g++'s
// -fpatchable-function-entry is not recommended because its table refers to what is dropped; without the table, it works.
func TestAdvice(t *testing.T) {
	needFentry(t)
	for _, tt := range []struct {
		cxx, linkers string
		prefix       string // of the linkers' commands
		machine      elf.Machine
		prepare      string // run on the objects
		flags        string // "": what is recommended
	}{
		{cxx: "g++", linkers: "bfd gold lld mold", machine: elf.EM_X86_64},
		{cxx: "clang++", linkers: "bfd gold lld mold", machine: elf.EM_X86_64},
		{cxx: "g++", linkers: "bfd gold lld mold", machine: elf.EM_X86_64, flags: "-fpatchable-function-entry=5",
			prepare: "objcopy -R __patchable_function_entries -R .rela__patchable_function_entries"},
		{cxx: "aarch64-linux-gnu-g++", linkers: "bfd gold", prefix: "aarch64-linux-gnu-", machine: elf.EM_AARCH64},
	} {
		name := strings.TrimSpace(tt.cxx + " " + tt.flags)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testtool.Need(t, tt.cxx, "objcopy")
			for _, ld := range strings.Fields(tt.linkers) {
				if tool := tt.prefix + "ld." + ld; ld != "bfd" {
					testtool.Need(t, tool)
				}
			}
			dir := t.TempDir()
			sh := func(command string) {
				t.Helper()
				argv := strings.Fields(command)
				cmd := exec.Command(argv[0], argv[1:]...)
				cmd.Dir = dir
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", command, err, out)
				}
			}
			sources, err := os.ReadDir(filepath.Join("testdata", "comdat"))
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range sources {
				b, err := os.ReadFile(filepath.Join("testdata", "comdat", s.Name()))
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, s.Name()), b, 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			sh(tt.cxx + " -O1 first.cc second.cc -o plain")
			flags := tt.flags
			if flags == "" {
				flags = advised(t, filepath.Join(dir, "plain"), tt.machine)
			}
			for _, o := range []string{"-O0", "-O2"} {
				sh(tt.cxx + " " + o + " -c " + flags + " first.cc second.cc")
				for _, obj := range []string{"first.o", "second.o"} {
					if tt.prepare != "" {
						sh(tt.prepare + " " + obj)
					}
				}
				for _, ld := range strings.Fields(tt.linkers) {
					prog := "prog" + o + ld
					sh(tt.cxx + " -fuse-ld=" + ld + " first.o second.o -o " + prog)
					if !t.Failed() {
						checkComdat(t, dir, prog, o == "-O0")
					}
				}
			}
		})
	}
}

// advised returns the recommended options for programs made like one in which nothing can be traced.
func advised(t *testing.T, path string, m elf.Machine) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	s := record.SourceOf(f)
	if s.Language != "C++" {
		t.Errorf("%s: made from %+v", path, s)
	}
	return s.Options(m)
}

// checkComdat runs the program traced and looks for the calls of the functions that both its files have.
func checkComdat(t *testing.T, dir, prog string, all bool) {
	t.Helper()
	data := filepath.Join(dir, prog+".data")
	r := run(t, command{dir: dir, argv: []string{fentry, "record", "-o", data, "./" + prog}})
	r.mustSucceed(t)
	if strings.TrimSpace(r.stdout) != "32" {
		t.Errorf("%s says %q", prog, r.stdout)
	}
	calls := map[string]int64{}
	for _, row := range report(t, data) {
		calls[row.Symbol] = row.Calls
	}
	want := map[string]int64{"main": 1, "_Z5otheri": 1, "_Z6sharedi": 4, "_Z5twiceIiET_S0_": 6}
	if all {
		want["_ZNK5Shape4areaEv"] = 2
	}
	for name, n := range want {
		if calls[name] != n {
			t.Errorf("%s: %d calls of %s, want %d", prog, calls[name], name, n)
		}
	}
}
