package stub

import (
	"bytes"
	"debug/elf"
	"encoding"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/stub/internal/build"
)

var machines = []*machine{onAMD64, onARM64}

// onARM64Shared stands for the runtime of shared objects: it is another one.
var onARM64Shared = &machine{name: "arm64-shared", elf: elf.EM_AARCH64, target: build.ARM64, shared: true}

// forEachObject runs a test for every runtime.
func forEachObject(t *testing.T, f func(t *testing.T, m *machine)) {
	forEach(t, f)
	t.Run(onARM64Shared.name, func(t *testing.T) { f(t, onARM64Shared) })
}

func object(t *testing.T, m *machine) (*elf.File, []byte) {
	t.Helper()
	get := Object
	if m.shared {
		get = SharedObject
	}
	b, err := get(m.elf)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return f, b
}

func TestObjectOfUnknownMachine(t *testing.T) {
	if _, err := Object(elf.EM_PPC64); err == nil {
		t.Error("no error")
	}
}

// forEach runs a test for every machine.
func forEach(t *testing.T, f func(t *testing.T, m *machine)) {
	for _, m := range machines {
		t.Run(m.name, func(t *testing.T) { f(t, m) })
	}
}

// relative are the relocations that work at any address, and those of thread-local memory.
var relative = map[string]bool{
	"R_X86_64_PC32": true, "R_X86_64_PLT32": true,
	"R_AARCH64_ADR_PREL_PG_HI21": true, "R_AARCH64_ADD_ABS_LO12_NC": true, "R_AARCH64_CALL26": true, "R_AARCH64_JUMP26": true,
	"R_AARCH64_LDST8_ABS_LO12_NC": true, "R_AARCH64_LDST16_ABS_LO12_NC": true, "R_AARCH64_LDST32_ABS_LO12_NC": true, "R_AARCH64_LDST64_ABS_LO12_NC": true,
	"R_AARCH64_PREL32":                     true,
	"R_AARCH64_TLSLE_ADD_TPREL_HI12":       true,
	"R_AARCH64_TLSLE_ADD_TPREL_LO12_NC":    true,
	"R_AARCH64_TLSLE_LDST64_TPREL_LO12_NC": true,
}

// lacking are names that debug/elf lacks.
var lacking = map[uint32]string{261: "R_AARCH64_PREL32", 559: "R_AARCH64_TLSLE_LDST64_TPREL_LO12_NC"}

// testPromises looks at an object's sections and relocations.
func testPromises(t *testing.T, m *machine, f *elf.File) {
	t.Helper()
	if f.Type != elf.ET_REL || f.Machine != m.elf {
		t.Errorf("type %v, machine %v", f.Type, f.Machine)
	}
	tls := uint64(0)
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_WRITE != 0 && s.Type != elf.SHT_NOBITS && s.Size > 0 {
			t.Errorf("%s: writable and not zero", s.Name)
		}
		if s.Flags&elf.SHF_TLS != 0 {
			tls += s.Size
		}
		if s.Flags&elf.SHF_WRITE != 0 && s.Flags&elf.SHF_EXECINSTR != 0 {
			t.Errorf("%s: flags %v", s.Name, s.Flags)
		}
		if s.Type == elf.SHT_INIT_ARRAY || s.Type == elf.SHT_GROUP {
			t.Errorf("%s: type %v", s.Name, s.Type)
		}
		if s.Type != elf.SHT_RELA {
			continue
		}
		b, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		for ; len(b) >= 24; b = b[24:] {
			code := uint32(f.ByteOrder.Uint64(b[8:]))
			name := elf.R_X86_64(code).String()
			if m.elf == elf.EM_AARCH64 {
				name = elf.R_AARCH64(code).String()
			}
			if m.elf == elf.EM_AARCH64 && lacking[code] != "" {
				name = lacking[code]
			}
			if !relative[name] {
				t.Errorf("%s offset %#x: %v", s.Name, f.ByteOrder.Uint64(b), name)
			}
		}
	}
	if want := map[string]uint64{"amd64": 0, "arm64": 8}[m.name]; tls != want {
		t.Errorf("%d bytes of thread-local memory, want %d", tls, want)
	}
}

// The object can be linked at any address into any program: what it promises.
func TestObject(t *testing.T) {
	forEachObject(t, func(t *testing.T, m *machine) {
		f, _ := object(t, m)
		testPromises(t, m, f)
		syms, err := f.Symbols()
		if err != nil {
			t.Fatal(err)
		}
		given := map[string]bool{"": true, "fentry_orig_entry": true, "fentry_orig_fini": true, "fentry_irel_ret": true, "fentry_syscall_filter": true}
		have := map[string]elf.Symbol{}
		for _, s := range syms {
			if s.Section == elf.SHN_UNDEF && !given[s.Name] {
				t.Errorf("undefined: %s", s.Name)
			}
			if elf.ST_BIND(s.Info) == elf.STB_GLOBAL && s.Section != elf.SHN_UNDEF && elf.ST_VISIBILITY(s.Other) != elf.STV_HIDDEN {
				t.Errorf("%s: visibility %v", s.Name, elf.ST_VISIBILITY(s.Other))
			}
			have[s.Name] = s
		}
		want := []string{"fentry_start", "fentry_irel", "fentry_config", "fentry_image", "fentry_null_cb"}
		if m != onARM64 {
			want = append(want, "fentry_init_first", "fentry_init_only")
		}
		for _, tracer := range []string{"graph", "order", "func", "profile", "count", "opt"} {
			want = append(want, "fentry_"+tracer+"_enter", "fentry_mcount_"+tracer+"_enter")
			if tracer != "func" && tracer != "count" {
				want = append(want, "fentry_"+tracer+"_exit")
			}
		}
		for _, name := range want {
			if s, ok := have[name]; !ok || s.Section == elf.SHN_UNDEF {
				t.Errorf("no symbol %s", name)
			}
		}
		if s := have["fentry_config"]; s.Size != ConfigSize {
			t.Errorf("fentry_config has %d bytes", s.Size)
		}
		if s := have["fentry_image"]; s.Size != ImageSize {
			t.Errorf("fentry_image has %d bytes", s.Size)
		}
	})
}

// hint is what signs an address, which earlier processors take for a nop.
var hint = regexp.MustCompile(`\tpaci[ab]1716`)

// topOfX87 is how a result of type long double is looked at.
var topOfX87 = regexp.MustCompile(`\tf(stp|ld)t\s`)

// The runtime never touches vector or x87 registers, which hold the traced
// program's arguments and results; nor does it use what would be a call of a libc.
// On arm64 nothing is reached but by direct branches, calls and returns, as there
// are no landing pads but at what other images call, by x16; x18 is not written but
// by the start, which restores it, and there is no instruction of later processors.
func TestObjectInstructions(t *testing.T) {
	forEachObject(t, func(t *testing.T, m *machine) {
		tool := strings.TrimSuffix(m.target.CC, "gcc") + "objdump"
		testtool.Need(t, tool)
		_, b := object(t, m)
		name := filepath.Join(t.TempDir(), "o.o")
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{"-d", "--no-show-raw-insn", name}
		bad := []*regexp.Regexp{
			regexp.MustCompile(`\s(x18|w18), |\t(blr?\tx(?:[02-9]|1(?:\b|[0-57-9]))|bra|isb|mrs\t.*, (?:nzcv|fpcr))`),
			regexp.MustCompile(`\t[^<]*\b[vqdshbzp]\d+\b|\t(pac|aut|reta|cas|swp|ldadd|stadd|ldset|ldclr|svc\t#0x[1-9])`),
		}
		if m == onAMD64 {
			args = append([]string{"-M", "att"}, args...)
			bad = []*regexp.Regexp{
				regexp.MustCompile(`%([xyz]mm|mm\d|st|k\d|tmm)|\t(f[a-z]+|emms|v[a-z]+)\s`),
				regexp.MustCompile(`rd(fs|gs)base|wr(fs|gs)base`),
			}
		}
		out, err := exec.Command(tool, args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		n, in, begins := 0, "", false
		for line := range strings.Lines(string(out)) {
			n++
			if _, f, ok := strings.Cut(strings.TrimSuffix(strings.TrimSpace(line), ">:"), " <"); ok && strings.HasSuffix(strings.TrimSpace(line), ">:") {
				in, begins = f, true
				continue
			}
			if lands := strings.Contains(line, "bti\tc"); begins && landing[in] && m != onAMD64 && !lands {
				t.Errorf("%s does not begin with a landing pad: %s", in, line)
			}
			begins = false
			line = hint.ReplaceAllString(target.ReplaceAllString(line, ""), "\tnop")
			if strings.Contains(in, "_act") && storesVector.MatchString(line) {
				continue // which they show to C, and do not change
			}
			if in == "fentry_place" && freeVector.MatchString(line) {
				continue // at both ends of functions of OCaml's
			}
			if strings.HasPrefix(in, "capture_") && topOfX87.MatchString(line) {
				continue // of results, which stay there
			}
			if strings.Contains(in, "_syscall_") || in == "fentry_exec" { // nothing but these keeps flags
				line = strings.Replace(line, ", nzcv", "", 1)
			}
			if callers[in] && strings.Contains(line, "\tblr\t") {
				continue
			}
			if !keepers[in] && (bad[0].MatchString(line) || bad[1].MatchString(line)) {
				t.Errorf("%s: %s", in, line)
			}
		}
		if n < 1000 {
			t.Errorf("only %d lines of disassembly", n)
		}
	})
}

// landing are the routines that other images call.
var landing = map[string]bool{"fentry_enter_keeping": true, "fentry_exit_keeping": true, "fentry_record_keeping": true, "fentry_act_keeping": true,
	"fentry_act_exit_keeping": true, "fentry_place_keeping": true, "register_image": true,
	"fentry_slow_syscall": true, "fentry_syscall_enter": true, "fentry_some_syscall_enter": true, "fentry_syscall_exit": true}

// keepers are the routines that keep registers which others must not touch.
// storesVector are the instructions that copy a vector register to the stack, or to the trace.
var storesVector = regexp.MustCompile(`\tmovups %xmm\d,(0x\d0)?\(%rsp\)|\tmovlps %xmm0,0x10\(%rax\)|\tstp\tq\d, q\d, \[sp`)

// freeVector are moves of registers that hold nothing.
var freeVector = regexp.MustCompile(`\tmovq .*%xmm1[1-5]|\tfmov\t(x\d+, )?d(1[6-9]|20)`)

var keepers = map[string]bool{"fentry_start": true, "fentry_sve_save": true, "fentry_sve_restore": true}

// callers call what others have said the address of: it begins with a landing pad, if the processor wants one.
var callers = map[string]bool{"capture_words": true, "fentry_loader_changed": true}

var target = regexp.MustCompile(`[0-9a-f]+ <[^>]*>`)

// TestErratum843419: early Cortex-A53 processors use a wrong address when an adrp in
// the last two words of a page is followed by a load or store, and that, or one
// instruction later, by one with the adrp's register and an unsigned offset (Arm's
// notice to software developers, 843419). Linkers change such code; elfio does not.
// If the test finds some, a nop in front of it moves it out of the way.
func TestErratum843419(t *testing.T) {
	for _, m := range []*machine{onARM64, onARM64Shared} {
		t.Run(m.name, func(t *testing.T) { testErratum843419(t, m) })
	}
}

func testErratum843419(t *testing.T, m *machine) {
	f, _ := object(t, m)
	s := f.Section(".text")
	if s.Addralign != 4096 {
		t.Fatalf("code is aligned to %d", s.Addralign)
	}
	b, err := s.Data()
	if err != nil {
		t.Fatal(err)
	}
	word := func(at int) uint32 { return f.ByteOrder.Uint32(b[at:]) }
	pages, all := 0, 0
	for at := 0; at+16 <= len(b); at += 4 {
		adrp := word(at)
		if adrp&0x9f000000 != 0x90000000 {
			continue
		}
		all++
		if at%4096 < 0xff8 {
			continue
		}
		pages++
		memory := func(w uint32) bool { return w>>25&5 == 4 }
		direct := func(w uint32) bool { return w&0x3b000000 == 0x39000000 && w>>5&31 == adrp&31 }
		if memory(word(at+4)) && (direct(word(at+8)) || direct(word(at+12))) {
			t.Errorf("at %#x: %08x %08x %08x %08x", at, adrp, word(at+4), word(at+8), word(at+12))
		}
	}
	if all < 100 {
		t.Errorf("only %d adrp", all)
	}
	t.Logf("%d of %d adrp are at the end of a page", pages, all)
}

// The embedded object is what the sources give, where the same compiler is at hand.
func TestObjectIsUpToDate(t *testing.T) {
	forEachObject(t, func(t *testing.T, m *machine) {
		testtool.Need(t, m.target.CC)
		v, err := build.Version(m.target)
		if err != nil {
			t.Fatal(err)
		}
		made, err := os.ReadFile(m.target.Name + ".o.txt")
		if err != nil {
			t.Fatal(err)
		}
		if v != strings.TrimSpace(string(made)) {
			t.Skipf("the object was made by %q, here is %q", strings.TrimSpace(string(made)), v)
		}
		files, err := build.Sources("src", m.target, build.Runtime)
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "new.o")
		var define []string
		if m.shared {
			define = []string{build.SharedDefine}
		}
		if err := build.Object(m.target, "src", out, files, define...); err != nil {
			t.Fatal(err)
		}
		_, b := object(t, m)
		compareObjects(t, out, b)
	})
}

// compareObjects compares what is loaded of a new object with that of an embedded one.
func compareObjects(t *testing.T, path string, embedded []byte) {
	t.Helper()
	fresh, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	old, err := elf.NewFile(bytes.NewReader(embedded))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range fresh.Sections {
		if s.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		o := old.Section(s.Name)
		if o == nil || o.Size != s.Size || o.Flags != s.Flags {
			t.Errorf("%s is different: go generate ./stub", s.Name)
			continue
		}
		if s.Type == elf.SHT_NOBITS {
			continue
		}
		a, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		b, err := o.Data()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s is different: go generate ./stub", s.Name)
		}
	}
}

// What C, assembly and Go agree on, compiled one against the other.
func TestLayout(t *testing.T) {
	forEach(t, testLayout)
}

func testLayout(t *testing.T, m *machine) {
	testtool.Need(t, m.target.CC)
	var src strings.Builder
	src.WriteString("#include \"control.h\"\n")
	is := func(c string, v any) {
		fmt.Fprintf(&src, "_Static_assert((%s) == %v, \"%s is not %v\");\n", c, v, c, v)
	}
	if m == onARM64 {
		is("FRONT_SIZE", arm64.FrontSize)
		is("1 << FRONT_SHIFT", arm64.FrontSize)
		is("BACK_SIZE", arm64.BackSize)
		is("1 << BACK_SHIFT", arm64.BackSize)
		is("THUNK_CALL_END", arm64.ThunkCallEnd)
		is("THUNK_RET", arm64.ThunkRet)
		is("THUNK_BYPASS", arm64.ThunkBypass)
		is("SHADOW_SPLIT", arm64.AnyShadow.Split)
		is("SHADOW_HIGH", arm64.AnyShadow.High)
		is("SHADOW_LOW", arm64.AnyShadow.Low)
		compileLayout(t, m, src.String())
		return
	}
	is("SHADOW_RET", amd64.ShadowBit)
	// The parts of a thunk, where its code has them.
	th := amd64.Thunk{Addr: 0x1000, Switch: 0x2000, Enter: 0x3000, Exit: 0x4000, Body: 0x5000, ID: 0x01020304}
	b := make([]byte, arch.ThunkSize)
	if err := th.Encode(b); err != nil {
		t.Fatal(err)
	}
	is("THUNK_SIZE", amd64.ThunkSize(arch.ThunkGraph))
	call := []byte{0xe8}
	is("THUNK_CALL_END", bytes.Index(b, call)+5)
	is("THUNK_RET", bytes.Index(b, []byte{0x40, 0xff, 0xf0}))
	is("THUNK_RET_END", bytes.LastIndex(b, call)+5)
	is("THUNK_BYPASS", bytes.Index(b, []byte{0x0f, 0x84}))
	th.Kind = arch.ThunkCount
	if err := th.Encode(b); err != nil {
		t.Fatal(err)
	}
	table := bytes.Index(b, []byte{0x65, 0x48, 0x8b, 0x40}) // mov %gs:..(%rax), %rax
	is("CB_TABLE", b[table+4])
	is("CB_OWNER", 0)
	compileLayout(t, m, src.String())
}

func compileLayout(t *testing.T, m *machine, src string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "layout.c")
	if err := os.WriteFile(name, []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-Isrc", "-Isrc/" + m.name, "-fsyntax-only"}, append(m.target.Args, build.Flags...)...)
	if out, err := exec.Command(m.target.CC, append(args, name)...).CombinedOutput(); err != nil {
		t.Errorf("%s", out)
	}
}

func TestConfig(t *testing.T) {
	c := Config{Mode: ModeProfile, Flags: FlagQuiet, Depth: 3, Policy: 1, Threshold: 10, Session: "/s", Dir: "d"}
	m := Image{
		ID: 0x1122334455667788, Sites: 7, Address: 0x404000, Thunks: -64, Backs: -32, Switches: 8, Roots: 1, BuildID: []byte{0xab, 0xcd}, Path: "/p",
	}
	type part struct {
		off  int
		want string
	}
	for _, s := range []struct {
		name  string
		size  int
		from  encoding.BinaryMarshaler
		parts []part
	}{
		{"config", ConfigSize, &c, []part{
			{0, "FENTRYCF\x01\x00\x00\x00\x02\x00\x00\x00\x04\x00\x00\x00\x03\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x0a"},
			{256, "/s\x00"}, {768, "d\x00"},
		}},
		{"image", ImageSize, &m, []part{
			{0, "FENTRYIM\x08\x00\x00\x00\x07\x00\x00\x00\x88\x77\x66\x55\x44\x33\x22\x11\x00\x40\x40\x00\x00\x00\x00\x00"},
			{32, "\xc0\xff\xff\xff\xff\xff\xff\xff\x08\x00\x00\x00\x00\x00\x00\x00\x01"},
			{136, "\x02\xab\xcd\x00"}, {256, "/p\x00"}, {1320, "\x07\x00\x00\x00"}, {1344, "\xe0\xff\xff\xff\xff\xff\xff\xff"},
		}},
	} {
		b, err := s.from.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if len(b) != s.size {
			t.Fatalf("%s: %d bytes", s.name, len(b))
		}
		for _, w := range s.parts {
			if !bytes.HasPrefix(b[w.off:], []byte(w.want)) {
				t.Errorf("%s at %d: % x", s.name, w.off, b[w.off:][:len(w.want)])
			}
		}
	}
	long := strings.Repeat("x", 1100)
	for _, m := range []encoding.BinaryMarshaler{
		&Config{Session: long[:512]}, &Config{Dir: long[:512]}, &Config{Dir: "a\x00b"},
		&Image{Path: long[:1016]}, &Image{Path: "a\x00b"}, &Image{BuildID: []byte(long[:120])},
	} {
		if _, err := m.MarshalBinary(); err == nil {
			t.Errorf("no error: %.60v", m)
		}
	}
	for _, m := range []encoding.BinaryMarshaler{
		&Config{Session: long[:511]}, &Config{Dir: long[:511]}, &Image{Path: long[:1007]}, &Image{BuildID: []byte(long[:103])},
	} {
		if _, err := m.MarshalBinary(); err != nil {
			t.Error(err)
		}
	}
}
