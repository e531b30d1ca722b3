package stub

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// A fixture is a program that the compiler has left room in at every function's
// entry, with the runtime linked in by the linker and its sites patched by this
// file. So the runtime is tested without the packages that patch finished programs.
type fixture struct {
	on     *machine
	cpu    string // for qemu
	path   string
	sites  []string            // function names; the id is the index plus 1
	env    []string            // for runs
	guests map[uint64][]string // names of functions of other images
}

// guestID is the image id of a guest.
const guestID = 0x5678

type buildOptions struct {
	on     *machine // amd64 unless set
	config Config
	cc     string              // gcc, the machine's, unless set
	flags  []string            // for the compiler
	tracer string              // graph, order, func, profile, count, opt; graph unless set
	behind bool                // sites are behind the prologue
	roots  []string            // graph roots
	hidden []string            // left out with all inside them
	off    []string            // until a recorder switches them on
	acts   map[string][]Action // by function, whose id is not set
	skip   func(name string) bool
	leaves bool // functions that have actions return by way of the slow path, too
	guest  bool // a shared object, to be loaded by a fixture
}

// buildFixture compiles and patches testdata/src.
func buildFixture(t testing.TB, src string, o buildOptions) *fixture {
	t.Helper()
	if o.on == nil {
		o.on = onAMD64
	}
	m := o.on
	if o.cc == "" {
		o.cc = m.cc
	}
	if o.tracer == "" {
		o.tracer = "graph"
	}
	testtool.Need(t, o.cc)
	const room = 400 // thunks
	dir := t.TempDir()
	obj := filepath.Join(dir, "runtime.o")
	runtime, err := Object(m.elf)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(obj, runtime, 0o644); err != nil {
		t.Fatal(err)
	}
	area := filepath.Join(dir, "area.S")
	code := fmt.Sprintf(`
	.section .fentry.thunks, "ax", %%progbits
	.balign 64
	.globl harness_thunks
harness_thunks: .zero %[1]d
	.balign 64
	.globl harness_backs
harness_backs: .zero %[1]d
	.section .fentry.frames, "a", %%progbits
	.balign 8
	.globl harness_frames
harness_frames: .zero %[2]d
	.globl harness_roots
harness_roots: .zero %[3]d
	.globl harness_off
harness_off: .zero %[3]d
	.globl harness_hidden
harness_hidden: .zero %[3]d
	.balign 8
	.globl harness_actions
harness_actions: .zero 65536
	.bss
	.balign 8
	.globl harness_switches
harness_switches: .zero %[4]d
	.globl harness_counts
harness_counts: .zero 256
	.section .note.GNU-stack, "", %%progbits
`, room*arch.ThunkSize, 128+room*128, room/8+8, SwitchesSize(room))
	if o.guest {
		code += `
	.globl fentry_orig_entry, fentry_orig_fini, fentry_irel_ret, fentry_syscall_filter
	.set fentry_orig_entry, harness_thunks
	.set fentry_orig_fini, harness_thunks
	.set fentry_irel_ret, harness_thunks
	.set fentry_syscall_filter, harness_thunks
	.hidden harness_thunks, harness_backs, harness_switches, fentry_orig_entry, fentry_orig_fini, fentry_irel_ret, fentry_syscall_filter
`
	}
	if err := os.WriteFile(area, []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, strings.TrimSuffix(src, filepath.Ext(src)))
	args := []string{"-O2", "-g", "-no-pie", "-fno-pie", fmt.Sprintf("-fpatchable-function-entry=%d", m.site/len(m.nop)), "-pthread", "-o", bin, filepath.Join("testdata", src), area, obj,
		"-Wl,-e,fentry_start", "-Wl,--defsym,fentry_orig_entry=_start", "-Wl,--defsym,fentry_orig_fini=_start", "-Wl,--defsym,fentry_irel_ret=_start",
		"-Wl,--defsym,fentry_syscall_filter=harness_thunks"}
	if o.guest {
		bin += ".so"
		args = []string{"-O2", "-g", "-fPIC", "-shared", "-fcf-protection=none", fmt.Sprintf("-fpatchable-function-entry=%d", m.site/len(m.nop)),
			"-o", bin, filepath.Join("testdata", src), area, obj, "-Wl,-z,nodelete"}
	}
	args = append(args, o.flags...)
	if out, err := exec.Command(o.cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", src, err, out)
	}
	f := &fixture{on: m, path: bin}
	image, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	e, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	syms, err := e.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	addr := map[string]uint64{}
	for _, s := range syms {
		addr[s.Name] = s.Value
	}
	at := func(a uint64) []byte {
		for _, p := range e.Progs {
			if p.Type == elf.PT_LOAD && a >= p.Vaddr && a < p.Vaddr+p.Filesz {
				return image[p.Off+a-p.Vaddr:]
			}
		}
		t.Fatalf("%s: no bytes at %#x", src, a)
		return nil
	}
	nops := bytes.Repeat(m.nop, m.site/len(m.nop))
	var sites []uint64
	if o.guest { // the table's contents are in relocations
		for _, s := range syms {
			if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size >= uint64(m.site) && bytes.HasPrefix(at(s.Value), nops) {
				sites = append(sites, s.Value)
			}
		}
	} else {
		table, err := e.Section("__patchable_function_entries").Data()
		if err != nil {
			t.Fatal(err)
		}
		for ; len(table) >= 8; table = table[8:] {
			sites = append(sites, le.Uint64(table))
		}
	}
	slices.Sort(sites)
	name := func(a uint64) string {
		for _, s := range syms {
			if elf.ST_TYPE(s.Info) == elf.STT_FUNC && a >= s.Value && a < s.Value+max(s.Size, 1) {
				return s.Name
			}
		}
		return fmt.Sprintf("%#x", a)
	}
	enter := "fentry_" + o.tracer + "_enter"
	if o.behind {
		enter = "fentry_mcount_" + o.tracer + "_enter"
	}
	size := m.thunkSize(thunk{function: o.tracer == "func", count: o.tracer == "count", behind: o.behind}.kind())
	var thunks []thunk
	var actions []Action
	for _, a := range sites {
		n := name(a)
		if o.skip != nil && o.skip(n) {
			continue
		}
		th := thunk{
			back: addr["harness_backs"] + uint64(len(thunks)*m.backSize),
			addr: addr["harness_thunks"] + uint64(len(thunks)*size), size: size, switched: addr["harness_switches"] + uint64(len(thunks)),
			enter: addr[enter], exit: addr["fentry_"+o.tracer+"_exit"], site: a, body: a + uint64(m.site), id: uint32(len(thunks) + 1),
			function: o.tracer == "func", count: o.tracer == "count", behind: o.behind,
		}
		if slices.Contains(o.hidden, n) {
			th.enter, th.exit = addr[strings.Replace(enter, "opt", "hide", 1)], addr["fentry_hide_exit"]
		}
		if acts := o.acts[n]; acts != nil {
			th.enter = addr[acting(enter, o.tracer)]
			for _, a := range acts {
				a.ID = th.id
				actions = append(actions, a)
				if a.Kind.AtExit(a.Value) || o.leaves {
					th.exit = addr["fentry_act_exit"]
				}
			}
		}
		if th.enter == 0 {
			t.Fatalf("no %s", enter)
		}
		code, err := m.thunk(at(th.addr), at(th.back), th)
		if err != nil {
			t.Fatal(err)
		}
		site := at(a)
		if !bytes.HasPrefix(site, nops) {
			t.Fatalf("%s: % x at %#x", n, site[:m.site], a)
		}
		copy(site, code)
		thunks = append(thunks, th)
		f.sites = append(f.sites, n)
	}
	if len(thunks) > room {
		t.Fatalf("%d sites", len(thunks))
	}
	copy(at(addr["harness_frames"]), m.frames(addr["harness_frames"], thunks))
	info := addr["fentry_image"]
	img := Image{
		ID: 0x1234, Sites: uint32(len(thunks)), Address: info, Thunks: int64(addr["harness_thunks"] - info), ThunkSize: uint32(size),
		Switches: int64(addr["harness_switches"] - info), Path: bin, Mode: o.config.Mode, Options: o.tracer == "opt", NoClock: o.tracer == "order",
	}
	if len(actions) > 0 {
		img.Actions, img.Counts = int64(addr["harness_actions"]-info), int64(addr["harness_counts"]-info)
		distance, size := addr["harness_actions"]-info, uint64(ActionsSize(len(actions), len(thunks))+7)&^7
		var data []byte
		for i := range actions {
			if b := plainCapture(&actions[i]); b != nil {
				actions[i].Value = distance + size + uint64(len(data))
				data = append(append(data, b...), make([]byte, -len(b)&7)...)
			}
		}
		table := AppendActions(make([]byte, 0, size), actions, len(thunks))
		table = append(table[:size], data...)
		if copy(at(addr["harness_actions"])[:65536], table) != len(table) {
			t.Fatalf("%d actions of %d functions", len(actions), len(thunks))
		}
		img.NActions = len(actions)
	}
	if m.backSize > 0 && arm64.HasBack(thunks[0].kind()) {
		img.Backs = int64(addr["harness_backs"] - info)
	}
	if o.guest {
		img.ID, img.Library = guestID, true
	}
	bitmap := func(names []string, symbol string) (distance int64) {
		if len(names) == 0 {
			return 0
		}
		b := at(addr[symbol])
		for i, n := range f.sites {
			if slices.Contains(names, n) {
				b[(i+1)/8] |= 1 << ((i + 1) % 8)
			}
		}
		return int64(addr[symbol] - info)
	}
	img.Off = bitmap(o.off, "harness_off")
	img.Roots, img.Without = bitmap(o.roots, "harness_roots"), bitmap(o.hidden, "harness_hidden")
	b, err := o.config.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	copy(at(addr["fentry_config"]), b)
	if b, err = img.MarshalBinary(); err != nil {
		t.Fatal(err)
	}
	copy(at(info), b)
	if err := runfile.WriteFile(bin, image); err != nil {
		t.Fatal(err)
	}
	return f
}

// plainCapture is what an action captures, as the slow path reads it, whose Plain says it: registers.
func plainCapture(a *Action) []byte {
	if a.Plain == 0 {
		return nil
	}
	n := uint16(a.Plain)
	code := byte(format.OpGeneral)
	if a.Kind == ActResult {
		n = 1
		if a.Plain == format.PlainFloat {
			code = format.OpFloat
		}
	}
	a.Words = 1 + int(n)
	b := le.AppendUint16(le.AppendUint16(nil, n), n)
	for i := range n {
		b = append(b, code, byte(i), 0, 0)
	}
	return b
}

// acting is the name of the enter routine of functions that have actions.
func acting(enter, tracer string) string {
	act := "act"
	if tracer == "func" {
		act = "actfunc"
	}
	return strings.Replace(enter, "_"+tracer+"_", "_"+act+"_", 1)
}
