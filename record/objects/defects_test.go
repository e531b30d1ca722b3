package objects_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/record/objects"
)

// Each of these is an object recordmcount treats wrongly; the name says what it does. Elsewhere are: objects with
// groups that the linker discards, position-independent images, garbage collection (TestLinkers), addends of SuperH
// (TestLinkedOnEveryMachine), the command line (TestRecordmcountName of cmd/fentry), how files are replaced
// (internal/buildstep).

func offsets(list []objects.Site) (out []string) {
	for _, s := range list {
		out = append(out, fmt.Sprintf("%#x/%d", s.Off, s.Len))
	}
	return out
}

func TestSectionOfWeakFunctionsOnly(t *testing.T) {
	b := assemble(t, "gcc", "__attribute__((weak)) void w(void) {}\n", "-O2", "-pg", "-mfentry", "-fno-pie",
		"-fno-asynchronous-unwind-tables", "-ffunction-sections")
	for _, o := range []objects.Options{{}, {Compat: true}} {
		f, err := elf.NewFile(bytes.NewReader(record(t, b, o)))
		if err != nil {
			t.Fatal(err)
		}
		syms, err := f.Symbols()
		if err != nil {
			t.Fatal(err)
		}
		var local, names []string
		for _, s := range syms {
			names = append(names, s.Name)
			if elf.ST_BIND(s.Info) == elf.STB_LOCAL && int(s.Section) < len(f.Sections) &&
				f.Sections[s.Section].Name == ".text.w" {
				local = append(local, s.Name)
			}
		}
		if len(local) != 1 || !slices.Contains(names, "w") || !slices.Contains(names, "__fentry__") {
			t.Errorf("symbols %q, local ones of .text.w %q", names, local)
		}
	}
}

func TestEveryProfilingSymbolOfASectionCounts(t *testing.T) {
	b := assemble(t, "gcc", "\t.text\nf:\tcall mcount\n\tret\ng:\tcall __fentry__\n\tret\nh:\tcall mcount\n\tret\n")
	if got := offsets(sites(t, b, objects.Options{})); !slices.Equal(got, []string{"0x0/5", "0x6/5", "0xc/5"}) {
		t.Errorf("sites %v", got)
	}
	record(t, b, objects.Options{})
}

func TestAddressesTakenAreNotSites(t *testing.T) {
	b := assemble(t, "gcc",
		"\t.text\nf:\tcall __fentry__\n\tlea __fentry__(%rip), %rax\n\tjmp __fentry__\n"+
			"\tmov __fentry__@GOTPCREL(%rip), %rax\n\t.quad __fentry__\n")
	var calls, taken int
	for _, s := range sites(t, b, objects.Options{}) {
		if s.Form == objects.FormAddress {
			taken++
		} else {
			calls++
		}
	}
	if calls != 1 || taken != 4 {
		t.Errorf("%d calls and %d addresses, want 1 and 4", calls, taken)
	}
	record(t, b, objects.Options{})
}

func TestUnlistedSectionsAlone(t *testing.T) {
	b := assemble(t, "gcc", "__attribute__((section(\".exit.text\"))) void e(void) {}\n", "-O2", "-pg", "-fno-pie")
	ob, err := objects.Parse(b, objects.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := ob.Unrecorded(); !slices.Equal(got, []string{".exit.text"}) {
		t.Errorf("Unrecorded %q", got)
	}
	out := record(t, b, objects.Options{})
	if !bytes.Contains(out, []byte{0x0f, 0x1f, 0x44, 0, 0}) || len(sites(t, out, objects.Options{})) != 0 {
		t.Error("the call in .exit.text has not become a nop")
	}
	compat := record(t, b, objects.Options{Compat: true})
	if len(compat) != len(b) {
		t.Errorf("only nops, but %d bytes became %d", len(b), len(compat))
	}
}

func TestX32(t *testing.T) {
	b := assemble(t, "gcc", "void f(void) {}\n", "-mx32", "-O2", "-pg", "-mfentry", "-fno-pie")
	f, err := elf.NewFile(bytes.NewReader(record(t, b, objects.Options{})))
	if err != nil {
		t.Fatal(err)
	}
	s := f.Section("__mcount_loc")
	r, err := f.Section(".rela__mcount_loc").Data()
	if err != nil || s.Size != 4 || f.ByteOrder.Uint32(r[4:])&0xff != uint32(elf.R_X86_64_32) {
		t.Errorf("table of %d bytes, relocation % x (%v)", s.Size, r, err)
	}
}

func TestFilesDoNotInfluenceEachOther(t *testing.T) {
	arm := synthetic(elf.EM_AARCH64, false, true, []uint32{0x94000000}, uint32(elf.R_AARCH64_CALL26), "_mcount")
	ppc := synthetic(elf.EM_PPC64, true, true, []uint32{0x48000001}, uint32(elf.R_PPC64_REL24), "_mcount")
	want := map[string]string{}
	for _, round := range [][]int{{0, 1}, {1, 0}, {0, 1, 0, 1}} {
		for _, i := range round {
			name, b := "arm64", arm
			if i == 1 {
				name, b = "ppc64", ppc
			}
			got := strings.Join(offsets(sites(t, b, objects.Options{})), " ")
			if want[name] == "" {
				want[name] = got
			}
			if got != want[name] || got != "0x0/4" {
				t.Errorf("%s: %q, before %q", name, got, want[name])
			}
		}
	}
}

// Entries name the first byte of what a tracer overwrites, not one inside an instruction or in front of it.
func TestEntriesAreAtTheFirstByte(t *testing.T) {
	for _, tt := range []struct{ cc, flags, first string }{
		{"gcc", "-fPIE -pg -mfentry", "\xff\x15"},
		{"gcc", "-fpic -pg", "\xff\x15"},
		{"gcc", "-m32 -fpic -pg", "\xff\x93"},
		{"gcc", "-fno-pie -mcmodel=large -pg -mfentry", "\x49\xba"},
		{"gcc", "-fpic -mcmodel=large -pg", "\x49\xbb"},
		{"gcc", "-fno-pie -pg", "\xe8\x00"},
		{"s390x-linux-gnu-gcc", "-pg", "\xe3\xe0"},          // stg %r14,8(%r15)
		{"s390x-linux-gnu-gcc", "-pg -mfentry", "\xc0\x05"}, // brasl %r0
	} {
		t.Run(tt.cc+" "+tt.flags, func(t *testing.T) {
			b := assemble(t, tt.cc, threeFunctions, append(strings.Fields(tt.flags), "-O2", "-ffreestanding")...)
			for _, o := range []objects.Options{{}, {Compat: true}} {
				out := record(t, b, o)
				f, err := elf.NewFile(bytes.NewReader(out))
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for e := range entries(t, out) {
					code, err := f.Sections[e.section].Data()
					if err != nil || !bytes.HasPrefix(code[e.off:], []byte(tt.first)) {
						t.Errorf("entry %#x of section %d: % x", e.off, e.section, code[e.off:][:4])
					}
					n++
				}
				if n != 4 {
					t.Errorf("%d entries, want 4", n)
				}
			}
		})
	}
}

// The addend of a call is in the instruction there.
func TestUnlistedCallsBecomeNopsOnI386(t *testing.T) {
	b := assemble(t, "gcc", "void f(void) {}\n__attribute__((section(\".exit.text\"))) void e(void) {}\n", "-m32", "-O2",
		"-pg", "-fno-pie", "-ffreestanding")
	out := record(t, b, objects.Options{})
	if !bytes.Contains(out, []byte{0x3e, 0x8d, 0x74, 0x26, 0}) || len(sites(t, out, objects.Options{})) != 1 {
		t.Error("the call in .exit.text has not become a nop")
	}
}

// More sections than a header's 16 bits can count, on machines of either byte order and both classes.
func TestManySections(t *testing.T) {
	const n = 33000 // 66,000 sections with their relocations
	for _, tt := range []struct {
		cc, code string
		wide     bool
	}{
		{"gcc", "call mcount\n\tret", false},
		{"s390x-linux-gnu-gcc", "brasl %r14,_mcount\n\tbr %r14", false},
		{"mips-linux-gnu-gcc", "jal _mcount\n\tnop", false},
		{"powerpc-linux-gnu-gcc", "bl _mcount\n\tblr", true},
		{"powerpc64-linux-gnu-gcc", "bl _mcount\n\tblr", true},
	} {
		if tt.wide && !testtool.Wide() {
			continue // the assembler takes its time
		}
		t.Run(tt.cc, func(t *testing.T) {
			t.Parallel()
			var s strings.Builder
			s.WriteString("\t.text\n")
			for i := range n {
				fmt.Fprintf(&s, "\t.section .text.f%d,\"ax\"\n\t.weak f%d\nf%d:\t%s\n", i, i, i, tt.code)
			}
			b := assemble(t, tt.cc, s.String())
			for _, o := range []objects.Options{{}, {Compat: true}} {
				out := record(t, b, o)
				ob, err := objects.Parse(out, o)
				if err != nil {
					t.Fatal(err)
				}
				tabled := 0
				for s := range ob.Sites() {
					if s.Tabled && s.Off == 0 {
						tabled++
					}
				}
				if tabled != n {
					t.Errorf("%d of %d sites are in a table", tabled, n)
				}
			}
		})
	}
}

// A relocation without a symbol, in a section that is not recorded and calls nothing.
func TestRelocationsWithoutSymbolAreNoCalls(t *testing.T) {
	b := assemble(t, "gcc",
		"\t.text\nf:\tcall mcount\n\tret\n\t.section .exit.text,\"ax\"\n\t.reloc ., R_X86_64_NONE\ng:\tnop\n"+
			"\t.reloc ., R_X86_64_64\n\t.quad 0\n")
	ob, err := objects.Parse(b, objects.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := ob.Unrecorded(); len(got) != 0 {
		t.Errorf("sections with calls: %q", got)
	}
	if got := offsets(sites(t, b, objects.Options{})); !slices.Equal(got, []string{"0x0/5"}) {
		t.Errorf("sites %v", got)
	}
	record(t, b, objects.Options{})
}

// What has been cut off is an error, wherever: an assembler writes the section headers last.
func TestCutOffObjects(t *testing.T) {
	b := assemble(t, "gcc", threeFunctions, "-O2", "-pg", "-mfentry", "-ffreestanding")
	for n := range len(b) {
		if _, err := objects.Parse(b[:n], objects.Options{}); err == nil {
			t.Fatalf("%d bytes of %d are taken for an object", n, len(b))
		}
	}
}

// An object whose sections have relocations of both kinds: each is read as what it is, the table gets the machine's.
func TestBothKindsOfRelocations(t *testing.T) {
	b := assemble(t, "gcc", "\t.text\nf:\tcall mcount\n\tret\n\t.section .text.g,\"ax\"\ng:\tnop\n\tcall mcount\n\tret\n")
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	shoff := binary.LittleEndian.Uint64(b[40:])
	for i, s := range f.Sections {
		if s.Name != ".rela.text.g" {
			continue
		}
		h := b[shoff+uint64(i)*64:]
		off := binary.LittleEndian.Uint64(b[s.Offset:])
		addend := binary.LittleEndian.Uint64(b[s.Offset+16:])
		copy(b[f.Sections[s.Info].Offset+off:], binary.LittleEndian.AppendUint32(nil, uint32(addend)))
		binary.LittleEndian.PutUint32(h[4:], uint32(elf.SHT_REL))
		binary.LittleEndian.PutUint64(h[32:], 16)
		binary.LittleEndian.PutUint64(h[56:], 16)
	}
	for _, o := range []objects.Options{{}, {Compat: true}} {
		out := record(t, b, o)
		if got := entries(t, out); len(got) != 2 {
			t.Errorf("entries %v", got)
		}
		f, err := elf.NewFile(bytes.NewReader(out))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range f.Sections {
			if strings.HasSuffix(s.Name, "__mcount_loc") && strings.HasPrefix(s.Name, ".rel") && s.Type != elf.SHT_RELA {
				t.Errorf("%s is of type %v", s.Name, s.Type)
			}
		}
	}
}

// Everything an object had stays, in its order: sections with their contents and attributes, symbols.
func TestWhatWasThereStays(t *testing.T) {
	for _, cc := range []string{"gcc", "arm-linux-gnueabihf-gcc", "mips-linux-gnu-gcc"} {
		b := assemble(t, cc, threeFunctions, "-O2", "-pg", "-ffreestanding", "-g")
		was, err := elf.NewFile(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []objects.Options{{KeepCalls: true}, {KeepCalls: true, Compat: true}} {
			is, err := elf.NewFile(bytes.NewReader(record(t, b, o)))
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range was.Sections {
				n := is.Sections[i]
				old, err1 := s.Data()
				data, err2 := n.Data()
				same := s.Type == elf.SHT_NOBITS || err1 == nil && err2 == nil && bytes.Equal(old, data)
				if s.Type == elf.SHT_SYMTAB || i == int(binary.LittleEndian.Uint16(b[0x3e:])) || s.Name == ".shstrtab" ||
					s.Name == ".strtab" {
					same = len(data) >= len(old) // symbols are compared below
				}
				if s.Name != n.Name || s.Type != n.Type || s.Flags != n.Flags || s.Addralign != n.Addralign || s.Link != n.Link ||
					!same {
					t.Errorf("%s %+v: section %d was %+v, is %+v", cc, o, i, s.SectionHeader, n.SectionHeader)
				}
			}
			if was.Section(".note.GNU-stack") == nil || is.Section(".note.GNU-stack") == nil {
				t.Errorf("%s: no .note.GNU-stack", cc)
			}
			before, err1 := was.Symbols()
			after, err2 := is.Symbols()
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			for _, s := range after {
				if len(before) > 0 && s == before[0] {
					before = before[1:]
				}
			}
			if len(before) > 0 {
				t.Errorf("%s %+v: symbols missing or in another order, from %+v", cc, o, before[0])
			}
		}
	}
}

func TestTablesOfOthersAreLeftAlone(t *testing.T) {
	for _, flags := range []string{"-pg -mfentry -mrecord-mcount -fno-pie",
		"-pg -mfentry -mrecord-mcount -mnop-mcount -fno-pie", "-fpatchable-function-entry=5"} {
		b := assemble(t, "gcc", threeFunctions, append(strings.Fields(flags), "-O2")...)
		ob, err := objects.Parse(b, objects.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if res, err := ob.Output(); err != nil || res.Output != nil {
			t.Errorf("%s: changed (%v)", flags, err)
		}
		if bad := slices.Collect(ob.Check()); len(bad) > 0 {
			t.Errorf("%s: %q", flags, bad)
		}
		if strings.Contains(flags, "patchable") {
			n := 0
			for s, err := range ob.Patchable() {
				if err != nil || s.Form != objects.FormPatchable {
					t.Errorf("%+v, %v", s, err)
				}
				n++
			}
			if n != 6 {
				t.Errorf("%d entries of __patchable_function_entries, want 6", n)
			}
		}
	}
}

// ld -r of an object with a table and one without: the sites without an entry get one.
func TestHalfATableIsCompleted(t *testing.T) {
	testtool.Need(t, "ld")
	dir := t.TempDir()
	a, b, c := filepath.Join(dir, "a.o"), filepath.Join(dir, "b.o"), filepath.Join(dir, "c.o")
	write(t, a, record(t, assemble(t, "gcc", "void a(void) {}\n", "-O2", "-pg", "-fno-pie"),
		objects.Options{Compat: true}))
	write(t, b, assemble(t, "gcc", "void b(void) {}\n", "-O2", "-pg", "-fno-pie"))
	command(t, "ld", "-r", "-o", c, a, b)
	out := record2(t, read(t, c))
	for _, s := range sites(t, out, objects.Options{}) {
		if !s.Tabled {
			t.Errorf("site at %#x has no entry", s.Off)
		}
	}
}

// record2 is record for an object whose original has a table.
func record2(t *testing.T, b []byte) []byte {
	t.Helper()
	ob, err := objects.Parse(b, objects.Options{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := ob.Output()
	if err != nil || res.Output == nil {
		t.Fatalf("nothing to add (%v)", err)
	}
	out := res.Output.Bytes()
	if again, err := objects.Parse(out, objects.Options{}); err != nil || len(slices.Collect(again.Check())) > 0 {
		t.Errorf("%v %q", err, slices.Collect(again.Check()))
	}
	if orig, err := objects.Strip(out); err != nil || !bytes.Equal(orig, b) {
		t.Errorf("Strip: %v", err)
	}
	return out
}
