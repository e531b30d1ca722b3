package record

import (
	"bufio"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// target is a machine that programs are compiled for.
type target struct {
	name      string
	binutils  string            // prefix of objdump and its kin
	compilers map[string]string // by the names that builds and sources use, with options
	pad       string            // what a landing pad begins with
	nop       string
	siteSize  int
	sled      int
	ret       RetLoc // at the entry
	call      string // how objdump's text of a call begins
}

var onAMD64 = &target{
	name: "amd64", compilers: map[string]string{"gcc": "gcc", "g++": "g++", "clang": "clang", "clang++": "clang++"},
	pad: "\xf3\x0f\x1e\xfa", nop: "\x90", siteSize: amd64SiteSize, sled: 11, ret: RetSP, call: "call",
}

var onARM64 = &target{
	name: "arm64", binutils: "aarch64-linux-gnu-",
	compilers: map[string]string{
		"gcc": "aarch64-linux-gnu-gcc", "g++": "aarch64-linux-gnu-g++",
		"clang": "clang --target=aarch64-linux-gnu", "clang++": "clang++ --target=aarch64-linux-gnu",
	},
	pad: "\x5f\x24\x03\xd5", nop: "\x1f\x20\x03\xd5", siteSize: arm64SiteSize, sled: 32, ret: RetLR, call: "bl",
}

// cc is the compiler with its options.
func (m *target) cc(name string) []string { return strings.Fields(m.compilers[name]) }

// compile runs the compiler.
func (m *target) compile(t *testing.T, name string, args ...string) {
	t.Helper()
	cc := m.cc(name)
	run(t, cc[0], append(cc[1:], args...)...)
}

// build is a way compilers leave sites.
type build struct {
	on       *target
	name     string
	compiler string
	flags    string
	kind     Kind
	before   int  // -fpatchable-function-entry=N,M: M
	after    int  // N-M
	noPIC    bool // the compiler refuses it for position-independent code
	// everywhere: all forms of image are tested even where not all tests are asked for; on amd64 they always are.
	everywhere bool
}

var builds = []build{
	{on: onAMD64, name: "fentry", compiler: "gcc", flags: "-pg -mfentry", kind: KindFentryCall},
	{on: onAMD64, name: "fentry-cet", compiler: "gcc", flags: "-pg -mfentry -fcf-protection", kind: KindFentryCall},
	{on: onAMD64, name: "mcount", compiler: "gcc", flags: "-pg", kind: KindMcountCall},
	{on: onAMD64, name: "mcount-clash", compiler: "gcc",
		flags: "-pg -fstack-clash-protection -fstack-protector-all -fcf-protection", kind: KindMcountCall},
	{on: onAMD64, name: "record", compiler: "gcc", flags: "-pg -mfentry -mrecord-mcount", kind: KindFentryCall},
	{on: onAMD64, name: "nop", compiler: "gcc", flags: "-pg -mfentry -mnop-mcount -mrecord-mcount", kind: KindNopMcount,
		noPIC: true},
	{on: onAMD64, name: "large", compiler: "gcc", flags: "-pg -mfentry -mcmodel=large", kind: KindFentryCall, noPIC: true},
	{on: onAMD64, name: "pfe5", compiler: "gcc", flags: "-fpatchable-function-entry=5", kind: KindPatchable, after: 5},
	{on: onAMD64, name: "pfe7_2", compiler: "gcc", flags: "-fpatchable-function-entry=7,2 -fcf-protection",
		kind: KindPatchable, before: 2, after: 5},
	{on: onAMD64, name: "pfe4", compiler: "gcc", flags: "-fpatchable-function-entry=4", kind: KindPatchable, after: 4},
	{on: onAMD64, name: "pfe7_7", compiler: "gcc", flags: "-fpatchable-function-entry=7,7", kind: KindPatchable,
		before: 7},
	{on: onAMD64, name: "fentry", compiler: "clang", flags: "-pg -mfentry", kind: KindFentryCall},
	{on: onAMD64, name: "mcount", compiler: "clang", flags: "-pg", kind: KindMcountCall},
	{on: onAMD64, name: "noplt", compiler: "clang", flags: "-pg -fno-plt", kind: KindMcountCall},
	{on: onAMD64, name: "pfe5", compiler: "clang", flags: "-fpatchable-function-entry=5", kind: KindPatchable, after: 5},
	{on: onAMD64, name: "pfe16_3", compiler: "clang", flags: "-fpatchable-function-entry=16,3 -fcf-protection",
		kind: KindPatchable, before: 3, after: 13},
	{on: onAMD64, name: "xray", compiler: "clang", flags: "-fxray-instrument -fxray-instruction-threshold=1",
		kind: KindXRay},

	{on: onARM64, name: "mcount", compiler: "gcc", flags: "-pg", kind: KindMcountCall, everywhere: true},
	{on: onARM64, name: "mcount-clash", compiler: "gcc", flags: "-pg -fstack-clash-protection -fstack-protector-all",
		kind: KindMcountCall},
	{on: onARM64, name: "mcount-bti", compiler: "gcc", flags: "-pg -mbranch-protection=bti", kind: KindMcountCall},
	{on: onARM64, name: "signed", compiler: "gcc", flags: "-pg -mbranch-protection=standard", kind: KindMcountCall,
		everywhere: true},
	{on: onARM64, name: "pfe2", compiler: "gcc", flags: "-fpatchable-function-entry=2", kind: KindPatchable, after: 2},
	{on: onARM64, name: "pfe2-bti", compiler: "gcc", flags: "-fpatchable-function-entry=2 -mbranch-protection=standard",
		kind: KindPatchable, after: 2},
	{on: onARM64, name: "pfe1", compiler: "gcc", flags: "-fpatchable-function-entry=1", kind: KindPatchable, after: 1},
	{on: onARM64, name: "pfe4_2", compiler: "gcc", flags: "-fpatchable-function-entry=4,2", kind: KindPatchable,
		before: 2, after: 2, everywhere: true},
	{on: onARM64, name: "pfe4_2-bti", compiler: "gcc", flags: "-fpatchable-function-entry=4,2 -mbranch-protection=bti",
		kind: KindPatchable, before: 2, after: 2},
	{on: onARM64, name: "pfe3_3", compiler: "gcc", flags: "-fpatchable-function-entry=3,3", kind: KindPatchable,
		before: 3},
	{on: onARM64, name: "mcount", compiler: "clang", flags: "-pg", kind: KindMcountCall},
	{on: onARM64, name: "noplt", compiler: "clang", flags: "-pg -fno-plt", kind: KindMcountCall},
	{on: onARM64, name: "signed", compiler: "clang", flags: "-pg -mbranch-protection=standard", kind: KindMcountCall},
	{on: onARM64, name: "pfe2", compiler: "clang", flags: "-fpatchable-function-entry=2", kind: KindPatchable, after: 2,
		everywhere: true},
	{on: onARM64, name: "pfe7_3-bti", compiler: "clang",
		flags: "-fpatchable-function-entry=7,3 -mbranch-protection=standard", kind: KindPatchable, before: 3, after: 4},
	{on: onARM64, name: "xray", compiler: "clang", flags: "-fxray-instrument -fxray-instruction-threshold=1",
		kind: KindXRay},
}

// link is a form of image.
type link struct {
	name, compile, link string
	pic                 bool
}

var links = []link{
	{"pie", "-fPIE", "-pie", true},
	{"no-pie", "-fno-pie", "-no-pie", false},
	{"static", "-fno-pie", "-static", false},
	{"static-pie", "-fPIE", "-static-pie", true},
	{"shared", "-fPIC -DSHARED", "-shared", true},
}

// truth is what compiler and linker say about one site.
type truth struct {
	fn   string
	site uint64 // offset from the function
	len  int
}

// TestCompiled compares Find with what the compilers' objects say, for every kind, form of image, compiler and level of
// optimisation, before and after strip.
func TestCompiled(t *testing.T) {
	for _, b := range builds {
		for _, opt := range []string{"-O0", "-O2", "-Os"} {
			for _, l := range links {
				if b.noPIC && l.pic || skipBuild(&b, &l) {
					continue
				}
				if !testtool.Wide() && b.on == onARM64 && (opt == "-Os" || !b.everywhere && l.name != "pie") {
					continue
				}
				if !testtool.Wide() && opt != "-O2" && l.name != "pie" && (l.name != "no-pie" || !b.noPIC) {
					continue
				}
				t.Run(b.on.name+"/"+b.compiler+"/"+b.name+"/"+l.name+opt, func(t *testing.T) {
					t.Parallel()
					b.need(t)
					testBuild(t, &b, opt, &l, "basic.c")
				})
			}
		}
	}
}

// TestCompiledCxx is the same for C++: functions in groups, weak ones, several symbols for one address.
func TestCompiledCxx(t *testing.T) {
	for _, b := range builds {
		if b.name == "record" || b.name == "nop" {
			continue // gcc's table refers to functions the linker drops; its own link fails
		}
		for _, l := range links[:4] {
			if b.noPIC && l.pic || skipBuild(&b, &l) || !testtool.Wide() && l.name != "pie" &&
				(l.name != "static" || b.on == onARM64 && !b.everywhere) {
				continue
			}
			t.Run(b.on.name+"/"+b.compiler+"/"+b.name+"/"+l.name, func(t *testing.T) {
				t.Parallel()
				cxx := b
				cxx.compiler = map[string]string{"gcc": "g++", "clang": "clang++"}[b.compiler]
				cxx.need(t)
				testBuild(t, &cxx, "-O2", &l, "classes.cc")
			})
		}
	}
}

// need skips a test without the tools of a build.
func (b *build) need(t *testing.T) {
	t.Helper()
	tools := []string{b.on.cc(b.compiler)[0]}
	for _, tool := range []string{"objdump", "strip", "nm"} {
		tools = append(tools, b.on.binutils+tool)
	}
	if b.on == onARM64 {
		tools = append(tools, "aarch64-linux-gnu-gcc") // its libraries
		if b.compiler == "clang++" {
			tools = append(tools, "aarch64-linux-gnu-g++")
		}
	}
	if b.name == "xray" {
		tools = append(tools, testtool.XRayRuntime)
	}
	testtool.Need(t, tools...)
}

// skipBuild names the combinations that toolchains refuse.
func skipBuild(b *build, l *link) bool {
	switch {
	case b.name == "record" && l.name == "static-pie": // ld: read-only segment has dynamic relocations
		return true
	case b.name == "xray" && l.name != "pie" && l.name != "no-pie": // its runtime is for dynamic executables
		return true
	}
	return false
}

func testBuild(t *testing.T, b *build, opt string, l *link, src string) {
	dir := t.TempDir()
	obj, img := filepath.Join(dir, "a.o"), filepath.Join(dir, "a.out")
	source := filepath.Join("testdata", "src", src)
	args := append(strings.Fields(b.flags+" "+opt+" "+l.compile), "-DIFUNC", "-w", "-c", "-o", obj, source)
	b.on.compile(t, b.compiler, args...)
	linkFlags := strings.Fields(l.link)
	if strings.Contains(b.flags, "-pg") && b.compiler == "clang" {
		linkFlags = append(linkFlags, "-pg")
	}
	if b.name == "xray" && b.on == onAMD64 { // Debian has no runtime for the other
		linkFlags = append(linkFlags, "-fxray-instrument")
	}
	b.on.compile(t, b.compiler, append(linkFlags, "-o", img, obj)...)

	want := readTruth(t, b, obj)
	if len(want) < 8 {
		t.Fatalf("the object has only %d sites", len(want))
	}
	reasons := readExpectations(t, b, source)
	addrs := symbolAddresses(t, b.on, img)
	sites := find(t, img)
	checkBytes(t, img, sites)

	wantAt := make(map[uint64]truth)
	for _, w := range want {
		a, ok := addrs[w.fn]
		if !ok {
			continue // dropped by the linker
		}
		wantAt[a+w.site] = w
	}
	seen := make(map[uint64]bool)
	for _, s := range sites {
		if s.Reason == "" && (s.Kind == KindNone || s.Len < b.on.siteSize) || s.Reason == ReasonNoSite && s.Kind != KindNone {
			t.Errorf("%s: %+v contradicts itself", s.Name, s)
		}
		if s.Kind == KindNone {
			continue
		}
		w, ok := wantAt[s.Addr]
		if !ok {
			t.Errorf("site of %s at %#x (+%#x), kind %v: the object knows nothing of it", s.Name, s.Addr, s.Addr-s.Func, s.Kind)
			continue
		}
		seen[s.Addr] = true
		if s.Func != addrs[w.fn] || s.Len != w.len || s.Kind != b.kind {
			t.Errorf("%s: site at +%#x of %#x, %d bytes, %v; want +%#x of %#x, %d bytes, %v",
				w.fn, s.Addr-s.Func, s.Func, s.Len, s.Kind, w.site, addrs[w.fn], w.len, b.kind)
		}
		wantRet := b.on.ret
		switch {
		case b.name == "signed" && b.on == onARM64:
			wantRet = RetSigned
		case b.kind == KindMcountCall:
			wantRet = RetFP
		}
		if s.Reason == "" && (s.Frame != 0) != (b.on == onARM64 && b.kind == KindMcountCall) {
			t.Errorf("%s: frame %#x", w.fn, s.Frame)
		}
		if s.Ret != wantRet {
			t.Errorf("%s: return address at %v", w.fn, s.Ret)
		}
		reason := reasons[w.fn]
		if w.len < b.on.siteSize && b.kind == KindPatchable {
			reason = ReasonShortSite
		}
		if s.Reason != reason {
			t.Errorf("%s: reason %q, want %q", w.fn, s.Reason, reason)
		}
	}
	for a, w := range wantAt {
		if !seen[a] {
			t.Errorf("%s: site at %#x not found", w.fn, a)
		}
	}
	all := byName(sites)
	for fn, reason := range reasons {
		if a, ok := addrs[fn]; ok && reason == ReasonNoSite {
			if s, ok := all[fn]; !ok || s.Reason != reason || s.Func != a {
				t.Errorf("%s: got %+v, want reason %s", fn, s, reason)
			}
		}
	}
	if b.on == onARM64 && b.kind == KindMcountCall {
		checkFrames(t, b.on, img, sites)
	}
	if b.on == onARM64 && strings.HasPrefix(b.compiler, "clang") && b.kind == KindMcountCall &&
		strings.HasPrefix(l.name, "static") {
		return // these calls pass no return address: nothing proves what they call
	}
	checkStripped(t, b.on, img, sites)
}

// checkStripped compares what is found without .symtab.
func checkStripped(t *testing.T, on *target, img string, sites []Site) {
	t.Helper()
	run(t, on.binutils+"strip", img)
	type key struct {
		fn, addr uint64
		len      int
		kind     Kind
		ret      RetLoc
		frame    uint32
		reason   Reason
	}
	reduce := func(sites []Site) []key {
		var out []key
		for _, s := range sites {
			if s.Kind != KindNone {
				out = append(out, key{s.Func, s.Addr, s.Len, s.Kind, s.Ret, s.Frame, s.Reason})
			}
		}
		return out
	}
	want, got := reduce(sites), reduce(find(t, img))
	if !slices.Equal(got, want) {
		for _, k := range want {
			if !slices.Contains(got, k) {
				t.Errorf("stripped: missing %+v", k)
			}
		}
		for _, k := range got {
			if !slices.Contains(want, k) {
				t.Errorf("stripped: extra %+v", k)
			}
		}
	}
}

// checkBytes reads the bytes of each site with another reader.
func checkBytes(t *testing.T, img string, sites []Site) {
	t.Helper()
	f, err := elf.Open(img)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, s := range sites {
		if s.Len == 0 {
			continue
		}
		got := make([]byte, s.Len)
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && s.Addr >= p.Vaddr && s.Addr < p.Vaddr+p.Filesz {
				if _, err := p.ReadAt(got, int64(s.Addr-p.Vaddr)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if string(got) != string(s.Bytes) {
			t.Errorf("%s: bytes % x, the file has % x", s.Name, s.Bytes, got)
		}
	}
}

// symbolAddresses are the functions of a linked image as nm prints them.
func symbolAddresses(t *testing.T, on *target, img string) map[string]uint64 {
	t.Helper()
	m := make(map[string]uint64)
	for _, line := range strings.Split(run(t, on.binutils+"nm", img), "\n") {
		f := strings.Fields(line)
		if len(f) == 3 && strings.Contains("tTwWi", f[1]) {
			m[f[2]], _ = strconv.ParseUint(f[0], 16, 64)
		}
	}
	return m
}

var expectLine = regexp.MustCompile(`^// expect (?:(amd64|arm64) )?(?:(gcc|clang) )?([\w,-]+): (\S+) (\S+)$`)

// readExpectations reads the lines of the source that say which functions have no usable site.
func readExpectations(t *testing.T, b *build, source string) map[string]Reason {
	t.Helper()
	f, err := os.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := make(map[string]Reason)
	for sc := bufio.NewScanner(f); sc.Scan(); {
		e := expectLine.FindStringSubmatch(sc.Text())
		if e == nil || e[1] != "" && e[1] != b.on.name || e[2] != "" && e[2] != b.compiler {
			continue
		}
		kind, _, _ := strings.Cut(b.name, "-")
		for _, k := range strings.Split(e[3], ",") {
			if k == "all" || k == kind {
				m[e[4]] = Reason(e[5])
			}
		}
	}
	return m
}

// readTruth reads the sites from the relocatable object.
func readTruth(t *testing.T, b *build, obj string) []truth {
	t.Helper()
	switch b.kind {
	case KindPatchable:
		return patchableTruth(t, b, obj)
	case KindXRay:
		return xrayTruth(t, b, obj)
	case KindNopMcount:
		return nopTruth(t, obj)
	}
	return callTruth(t, b, obj)
}

var (
	labelLine = regexp.MustCompile(`^([0-9a-f]+) <(.+)>:$`)
	instLine  = regexp.MustCompile(`^ *([0-9a-f]+):\t((?:[0-9a-f]{2} )+|[0-9a-f]{8} ) *\t?(.*)$`)
	relocLine = regexp.MustCompile(`^\t\t\t[0-9a-f]+: R_\w+\t(\S+)`)
)

// callTruth reads objdump's disassembly with relocations.
func callTruth(t *testing.T, b *build, obj string) []truth {
	t.Helper()
	type inst struct {
		at    uint64
		len   int
		text  string
		reloc string
	}
	var insts []inst
	var out []truth
	fn, base := "", uint64(0)
	flush := func() {
		for i, in := range insts {
			name := strings.TrimSuffix(in.reloc, "-0x4")
			if name != "__fentry__" && name != "mcount" && name != "_mcount" {
				continue
			}
			tr := truth{fn, in.at - base, in.len}
			switch {
			case strings.HasPrefix(in.text, "movabs"): // -mcmodel=large: the call through the register is next
				tr.len += insts[i+1].len
				if !strings.HasPrefix(insts[i+1].text, "call") {
					panic(insts[i+1].text)
				}
			case !strings.HasPrefix(in.text, b.on.call):
				continue
			}
			last := i
			if tr.len > in.len {
				last++
			}
			if name == "__fentry__" && last+1 < len(insts) && strings.Contains(insts[last+1].text, "pop    %r10") {
				// A nested function: the site is all from push %r10 on, which is the function's first instruction.
				if !strings.Contains(insts[0].text, "push   %r10") {
					panic(fn + " saves the static chain in an unknown way")
				}
				tr.len = int(insts[last+1].at + uint64(insts[last+1].len) - base)
				tr.site = 0
			}
			out = append(out, tr)
		}
		insts = insts[:0]
	}
	for _, line := range strings.Split(run(t, b.on.binutils+"objdump", "-dr", obj), "\n") {
		if m := labelLine.FindStringSubmatch(line); m != nil {
			flush()
			fn = m[2]
			base, _ = strconv.ParseUint(m[1], 16, 64)
		} else if m := instLine.FindStringSubmatch(line); m != nil {
			at, _ := strconv.ParseUint(m[1], 16, 64)
			n := len(strings.Join(strings.Fields(m[2]), "")) / 2
			if m[3] == "" && len(insts) > 0 { // the rest of the bytes of a long one
				insts[len(insts)-1].len += n
			} else {
				insts = append(insts, inst{at: at, len: n, text: m[3]})
			}
		} else if m := relocLine.FindStringSubmatch(line); m != nil && len(insts) > 0 {
			insts[len(insts)-1].reloc = m[1]
		}
	}
	flush()
	return out
}

// object is a relocatable object read with debug/elf.
type object struct {
	*elf.File
	syms []elf.Symbol
}

func openObject(t *testing.T, path string) *object {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	return &object{f, syms}
}

// place is an offset in a section of an object.
type place struct {
	section elf.SectionIndex
	off     uint64
}

// tableRelocs returns what the relocations of a table refer to, by their place in the table.
func (o *object) tableRelocs(t *testing.T, table string) map[uint64]place {
	t.Helper()
	out := make(map[uint64]place)
	base := uint64(0)
	for i, s := range o.Sections {
		if s.Name != table {
			continue
		}
		for _, r := range o.Sections {
			if r.Type != elf.SHT_RELA || int(r.Info) != i {
				continue
			}
			data, err := r.Data()
			if err != nil {
				t.Fatal(err)
			}
			for ; len(data) >= 24; data = data[24:] {
				off := o.ByteOrder.Uint64(data)
				sym := o.syms[o.ByteOrder.Uint64(data[8:])>>32-1]
				out[base+off] = place{sym.Section, sym.Value + o.ByteOrder.Uint64(data[16:])}
			}
		}
		base += s.Size
	}
	return out
}

// function returns the last function of a section whose offset passes ok.
func (o *object) function(sec elf.SectionIndex, ok func(off uint64) bool) (elf.Symbol, bool) {
	best := elf.Symbol{}
	found := false
	for _, s := range o.syms {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Section == sec && ok(s.Value) && (!found || s.Value > best.Value) {
			best, found = s, true
		}
	}
	return best, found
}

func (o *object) bytes(t *testing.T, p place, n int) string {
	t.Helper()
	b, err := o.Sections[p.section].Data()
	if err != nil {
		t.Fatal(err)
	}
	return string(b[p.off:min(p.off+uint64(n), uint64(len(b)))])
}

func patchableTruth(t *testing.T, b *build, obj string) []truth {
	t.Helper()
	o := openObject(t, obj)
	var out []truth
	for _, p := range o.tableRelocs(t, SourcePatchable) {
		fn, ok := o.function(p.section, func(off uint64) bool { return off == p.off+uint64(b.before*len(b.on.nop)) })
		if !ok { // a landing pad before the nops
			fn, ok = o.function(p.section, func(off uint64) bool { return off+4 == p.off })
		}
		if !ok {
			t.Fatalf("no function for the entry %+v", p)
		}
		tr := truth{fn: fn.Name, len: b.after * len(b.on.nop)}
		if o.bytes(t, place{p.section, fn.Value}, 4) == b.on.pad {
			tr.site = 4
		}
		// The compiler may have put further nops behind its own: those count as well.
		for strings.HasPrefix(o.bytes(t, place{p.section, fn.Value + tr.site + uint64(tr.len)}, len(b.on.nop)), b.on.nop) {
			tr.len += len(b.on.nop)
		}
		out = append(out, tr)
	}
	return out
}

func nopTruth(t *testing.T, obj string) []truth {
	t.Helper()
	o := openObject(t, obj)
	var out []truth
	for _, p := range o.tableRelocs(t, SourceMcountLoc) {
		fn := elf.Symbol{}
		for _, s := range o.syms {
			if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Section == p.section && s.Value <= p.off && p.off < s.Value+s.Size {
				fn = s
			}
		}
		tr := truth{fn.Name, p.off - fn.Value, 5}
		if b := o.bytes(t, p, 5); b != "\x0f\x1f\x44\x00\x00" {
			t.Fatalf("%s: % x at its entry of the table", fn.Name, b)
		}
		if tr.site == 2 { // push %r10
			tr.site, tr.len = 0, 9
		}
		out = append(out, tr)
	}
	return out
}

func xrayTruth(t *testing.T, b *build, obj string) []truth {
	t.Helper()
	o := openObject(t, obj)
	var data []byte
	for _, s := range o.Sections {
		if s.Name == SourceXRay {
			b, err := s.Data()
			if err != nil {
				t.Fatal(err)
			}
			data = append(data, b...)
		}
	}
	var out []truth
	for off, p := range o.tableRelocs(t, SourceXRay) {
		if off%32 != 0 || data[off+16] != 0 {
			continue
		}
		// Sleds are aligned to two bytes: at -Os, where functions are not, a nop can stand before one.
		fn, ok := o.function(p.section,
			func(v uint64) bool { return v == p.off || v+1 == p.off || v+4 == p.off || v+5 == p.off })
		if !ok {
			t.Fatalf("no function for the sled at %+v", p)
		}
		out = append(out, truth{fn.Name, p.off - fn.Value, b.on.sled})
	}
	return out
}

func (t truth) String() string { return fmt.Sprintf("%s+%#x/%d", t.fn, t.site, t.len) }
