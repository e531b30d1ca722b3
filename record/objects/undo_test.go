package objects_test

import (
	"bytes"
	"debug/elf"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/record/objects"
)

const exitSource = `int one(int x) { return x; }
__attribute__((section(".exit.text"))) void bye(void) {}
`

// rewritten returns what Output makes of b.
func rewritten(t *testing.T, b []byte, o objects.Options) []byte {
	t.Helper()
	ob, err := objects.Parse(b, o)
	if err != nil {
		t.Fatal(err)
	}
	res, err := ob.Output()
	if err != nil {
		t.Fatal(err)
	}
	if res.Output == nil {
		return b
	}
	return res.Output.Bytes()
}

func calls(t *testing.T, b []byte) (n int) {
	t.Helper()
	for _, s := range sites(t, b, objects.Options{}) {
		if s.Form != objects.FormAddress {
			n++
		}
	}
	return n
}

// A table that is there does not keep the calls from becoming nops, whoever made it; Strip undoes all that was done.
func TestNopsOfObjectsWithATable(t *testing.T) {
	for _, flag := range []string{"-g0", "-mrecord-mcount"} {
		for _, o := range []objects.Options{{}, {Compat: true}} {
			orig := assemble(t, "gcc", exitSource, "-O1", "-pg", "-mfentry", "-fno-pie", flag)
			tabled := rewritten(t, orig, o)
			o.Nop = true
			nops := rewritten(t, tabled, o)
			if n := calls(t, nops); n != 0 {
				t.Errorf("%s %+v: %d calls are left", flag, o, n)
			}
			if again := rewritten(t, nops, o); !bytes.Equal(again, nops) {
				t.Errorf("%s %+v: a second run changes the object", flag, o)
			}
			ob, err := objects.Parse(nops, o)
			if err != nil {
				t.Fatal(err)
			}
			if bad := slices.Collect(ob.Check()); flag == "-g0" && len(bad) > 0 {
				t.Errorf("%s %+v: check: %q", flag, o, bad)
			}
			if back, err := objects.Strip(nops); err != nil || !bytes.Equal(back, orig) {
				t.Errorf("%s %+v: Strip does not give back the original (%v)", flag, o, err)
			}
		}
	}
}

func TestStripOfWhatWasAddedLater(t *testing.T) {
	orig := assemble(t, "gcc", exitSource, "-O1", "-pg", "-mfentry", "-fno-pie")
	b := rewritten(t, rewritten(t, orig, objects.Options{KeepCalls: true}), objects.Options{AllExec: true})
	if back, err := objects.Strip(b); err != nil || !bytes.Equal(back, orig) {
		t.Errorf("Strip does not give back the original (%v)", err)
	}
}

// Where no nops are known, asking for them is an error and not a success that leaves the calls.
func TestNopsOfMachinesWithoutThem(t *testing.T) {
	b := synthetic(elf.EM_PPC64, true, true, []uint32{0x48000001}, uint32(elf.R_PPC64_REL24), "_mcount")
	ob, err := objects.Parse(b, objects.Options{Nop: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ob.Output(); err == nil ||
		!strings.Contains(err.Error(), "section 1 (.text) at offset 0x0: no nops are known for the call") {
		t.Errorf("error %v", err)
	}
}

// GNU ld refuses relocations of type R_X86_64_NONE in libraries and position-independent programs if their symbol is
// defined by another library.
func TestNopsLinkIntoLibraries(t *testing.T) {
	for _, cc := range []string{"gcc", "clang"} {
		t.Run(cc, func(t *testing.T) {
			dir := t.TempDir()
			obj := filepath.Join(dir, "x.o")
			write(t, obj, record(t, assemble(t, cc, exitSource, "-O1", "-pg", "-mfentry", "-fPIC"), objects.Options{}))
			testtool.Need(t, "ld.bfd")
			command(t, "gcc", "-shared", "-fuse-ld=bfd", "-Wl,-z,text", obj, "-o", filepath.Join(dir, "x.so"))
		})
	}
}

// With Compat most objects need no undo record, because recordmcount's changes can be undone without. These cannot.
func TestStripOfUnusualCompatObjects(t *testing.T) {
	pc32 := assemble(t, "gcc", "\t.text\n\tret\n\t.section .exit.text,\"ax\"\n\t.byte 0xe8\n\t.long mcount-.-4\n")
	record(t, pc32, objects.Options{Compat: true})

	plain := assemble(t, "gcc", exitSource, "-O1", "-pg", "-fno-pie")
	nops := rewritten(t, plain, objects.Options{Compat: true})
	again := record(t, plain, objects.Options{Compat: true})
	if !bytes.Equal(nops, again) || bytes.HasSuffix(nops, []byte("FENTRYMC")) {
		t.Error("an undo record where none is needed")
	}

	// A nop of an earlier run, put together with an object without a table.
	dir := t.TempDir()
	a, b, both := filepath.Join(dir, "a.o"), filepath.Join(dir, "b.o"), filepath.Join(dir, "both.o")
	write(t, a, rewritten(t,
		assemble(t, "gcc", "__attribute__((section(\".exit.text\"))) void bye(void) {}\n", "-O1", "-pg",
			"-fno-pie"), objects.Options{Compat: true}))
	write(t, b, assemble(t, "gcc", "void two(void) {}\n", "-O1", "-pg", "-fno-pie"))
	command(t, "ld", "-r", a, b, "-o", both)
	orig := read(t, both)
	if back, err := objects.Strip(rewritten(t, orig, objects.Options{Compat: true})); err != nil ||
		!bytes.Equal(back, orig) {
		t.Errorf("Strip does not give back the original (%v)", err)
	}

	// The first section header, of which nothing is to be used, is not empty.
	odd := bytes.Clone(plain)
	f, err := elf.NewFile(bytes.NewReader(odd))
	if err != nil {
		t.Fatal(err)
	}
	odd[f.ByteOrder.Uint64(odd[40:])+32] = 7
	record(t, odd, objects.Options{Compat: true})
}
