package arm64

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// A harness is a program with a small runtime (testdata/harness.S), whose functions
// get thunks.
type harness struct {
	t      *testing.T
	raw    []byte
	f      *elf.File
	syms   map[string]elf.Symbol
	funcs  []elf.Symbol // traced, by address: ids from 1
	thunks []Thunk
}

// buildHarness compiles testdata/traced.c and traces its functions with thunks of a kind.
func buildHarness(t *testing.T, kind arch.ThunkKind, rules *Callers, flags string) *harness {
	t.Helper()
	cc := testtool.Path(t, gccTool)
	testtool.Need(t, "qemu-aarch64")
	exe := filepath.Join(t.TempDir(), "prog")
	args := append(strings.Fields(flags), "-O2", "-fno-pie", "-no-pie", "-fexceptions", "-w", "-Wl,--build-id=none", "-o", exe,
		"testdata/traced.c", "testdata/harness.S", "-lgcc_s", "-lpthread")
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %v: %v\n%s", args, err, out)
	}
	raw, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{t: t, raw: raw, f: f, syms: map[string]elf.Symbol{}}
	all, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		h.syms[s.Name] = s
	}
	enter, mcount := "graph_enter", false
	switch kind {
	case arch.ThunkFunc:
		enter = "func_enter"
	case arch.ThunkMcount:
		enter, mcount = "mcount_enter", true
	case arch.ThunkMcountFunc:
		enter, mcount = "mcount_func_enter", true
	}
	for _, fn := range functions(f) {
		site, n, frame, ok := h.site(fn, mcount)
		if !ok {
			continue
		}
		h.funcs = append(h.funcs, fn)
		id := uint32(len(h.funcs))
		th := Thunk{
			Addr: h.syms["thunks"].Value + uint64(id-1)*FrontSize, Back: h.syms["backs"].Value + uint64(id-1)*BackSize,
			Switch: h.syms["armed"].Value, Enter: h.syms[enter].Value,
			Exit: h.syms["thunk_exit"].Value, Body: site + uint64(n), ID: id, Kind: kind, Frame: frame,
		}
		h.thunks = append(h.thunks, th)
		if err := th.Encode(h.at(th.Addr)[:FrontSize]); err != nil {
			t.Fatal(err)
		}
		if HasBack(kind) {
			if err := th.EncodeBack(h.at(th.Back)[:BackSize]); err != nil {
				t.Fatal(err)
			}
		}
		op := AppendJump
		if mcount {
			op = AppendCall
		}
		b, err := op(nil, site, th.Addr)
		if err != nil {
			t.Fatal(err)
		}
		copy(h.at(site), b)
	}
	if len(h.funcs) < 15 {
		t.Fatalf("only %d functions have sites", len(h.funcs))
	}
	base := h.syms["frames"].Value
	fr := ThunkFrames(base, h.thunks, AnyShadow)
	eh := fr.EhFrame
	if rules != nil {
		eh = h.rewrite(eh, base, *rules)
	}
	copy(h.at(base), append(eh, 0, 0, 0, 0))
	return h
}

// at returns the bytes from address addr to the end of the file.
func (h *harness) at(addr uint64) []byte {
	for _, p := range h.f.Progs {
		if p.Type == elf.PT_LOAD && addr-p.Vaddr < p.Filesz {
			return h.raw[p.Off+addr-p.Vaddr:]
		}
	}
	h.t.Fatalf("address %#x is not in the file", addr)
	return nil
}

// site returns where fn is to be hooked, the length of that, and for -pg how far the CFA is above x29 there.
func (h *harness) site(fn elf.Symbol, mcount bool) (addr uint64, n int, frame uint32, ok bool) {
	b := h.at(fn.Value)[:fn.Size]
	if !mcount {
		site, err := Ftrace{}.CallAdjust(arch.Bytes{Addr: fn.Value, Data: b}, fn.Value)
		if err != nil || site == fn.Value || word32(b[site-fn.Value:]) != WordNop {
			return 0, 0, 0, false
		}
		return site - InstLen, 2 * InstLen, 0, true
	}
	var sp, fp int64 // below the CFA
	var regs [32]int64
	for off := 0; off < len(b); off += InstLen {
		w := word32(b[off:])
		in := DecodeWord(w)
		rd, rn, rm := w&31, w>>5&31, w>>16&31
		switch {
		case w&0xffc003ff|w&0xffc07fff&^0x7c00 == 0xa98003fd && w>>10&31 == 30: // stp x29, x30, [sp, #-n]!
			sp -= signed(w>>15, 7) * 8
		case w&0xff8003ff == 0xd10003ff: // sub sp, sp, #n
			sp += int64(w>>10&0xfff) << (w >> 22 & 1 * 12)
		case w&0xff800000 == 0xd2800000: // movz
			regs[rd] = int64(w>>5&0xffff) << (w >> 21 & 3 * 16)
		case w&0xff800000 == 0xf2800000: // movk
			regs[rd] |= int64(w>>5&0xffff) << (w >> 21 & 3 * 16)
		case w&0xffe0fc1f == 0xcb20601f && rn == 31: // sub sp, sp, xm
			sp += regs[rm]
		case w&0xffc003ff == 0x910003fd: // add x29, sp, #n
			fp = sp - int64(w>>10&0xfff)
		case in.Op == Call && in.Target(fn.Value+uint64(off)) == h.syms["_mcount"].Value:
			return fn.Value + uint64(off), InstLen, uint32(fp), fp > 0
		case in.Op.EndsBlock():
			return 0, 0, 0, false
		}
	}
	return 0, 0, 0, false
}

// rewrite appends copies of the program's own FDEs, with rules, to eh at address base.
func (h *harness) rewrite(eh []byte, base uint64, rules Callers) []byte {
	le := binary.LittleEndian
	s := h.f.Section(".eh_frame")
	data, err := s.Data()
	if err != nil {
		h.t.Fatal(err)
	}
	type cie struct {
		at    int // in eh, 0: not to be changed
		align int64
	}
	cies := map[int]cie{}
	moved, refused := 0, 0
	for off := 0; off+4 < len(data) && le.Uint32(data[off:]) != 0; {
		body := data[off+4 : off+4+int(le.Uint32(data[off:]))]
		id := le.Uint32(body)
		if id == 0 {
			var c cie
			if string(body[5:8]) == "zR\x00" {
				_, n := binary.Uvarint(body[8:])
				c.align = int64(int8(body[8+n]<<1)) >> 1
				insts := body[8+n+4:]
				if StartsAtEntry(uint64(body[8+n+1]), 4, c.align, insts) {
					c.at = len(eh)
					eh = append(le.AppendUint32(eh, 0), body...)
					eh = arch.FinishEntry(append(eh, rules.Rule()...), c.at)
				}
			}
			cies[off] = c
		} else if c := cies[off+4-int(id)]; c.at != 0 {
			pc := s.Addr + uint64(off) + 8 + uint64(int64(int32(le.Uint32(body[4:]))))
			rows, err := rules.Rows(body[13:], c.align)
			if err != nil && !errors.Is(err, ErrSigned) {
				h.t.Fatalf("FDE of %#x: %v", pc, err)
			}
			if err != nil {
				refused++
			} else if pc < h.syms["thunks"].Value && pc >= h.funcs[0].Value { // the copies must not hide more than these
				at := len(eh)
				eh = le.AppendUint32(le.AppendUint32(eh, 0), uint32(at+4-c.at))
				eh = le.AppendUint32(eh, uint32(pc-(base+uint64(at)+8)))
				eh = arch.FinishEntry(append(append(eh, body[8:13]...), rows...), at)
				moved++
			}
		}
		off += 4 + len(body)
	}
	if moved+refused < len(h.funcs) {
		h.t.Errorf("%d FDEs for %d functions", moved+refused, len(h.funcs))
	}
	return eh
}

// command writes the program and returns how to run it.
func (h *harness) command(cpu string, args ...string) *exec.Cmd {
	h.t.Helper()
	exe := filepath.Join(h.t.TempDir(), "prog")
	if err := runfile.WriteFile(exe, h.raw); err != nil {
		h.t.Fatal(err)
	}
	return exec.Command("qemu-aarch64", append([]string{"-cpu", cpu, "-L", sysroot, exe}, args...)...)
}

// run runs the program and returns what it says on its two outputs.
func (h *harness) run(cpu string, args ...string) (out string, events []uint32, bt []uint64) {
	h.t.Helper()
	cmd := h.command(cpu, args...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		h.t.Fatalf("%v: %v\n%s%s", args, err, stdout.String(), stderr.String())
	}
	for line := range strings.Lines(stderr.String()) {
		line = strings.TrimSpace(line)
		a, isAddr := strings.CutPrefix(line, "0x")
		v, err := strconv.ParseUint(a, 16, 64)
		switch {
		case line == "(nil)":
		case err != nil:
			h.t.Fatalf("%q on the standard error", line)
		case isAddr:
			bt = append(bt, v)
		default:
			events = append(events, uint32(v))
		}
	}
	return stdout.String(), events, bt
}

// names are the functions that addresses are in, as far as main. Addresses in thunks are "front NAME+OFFSET" and "back
// NAME+OFFSET".
func (h *harness) names(addrs []uint64) (list []string) {
	all := functions(h.f)
	for _, a := range addrs {
		name := "?"
		if off := a - h.syms["thunks"].Value; off < uint64(len(h.thunks)*FrontSize) {
			name = fmt.Sprintf("front %s+%d", h.funcs[off/FrontSize].Name, off%FrontSize)
		} else if off := a - h.syms["backs"].Value; off < uint64(len(h.thunks)*BackSize) {
			name = fmt.Sprintf("back %s+%d", h.funcs[off/BackSize].Name, off%BackSize)
		} else {
			for _, s := range all {
				if a-s.Value < s.Size {
					name = s.Name
				}
			}
		}
		list = append(list, name)
		if name == "main" {
			break
		}
	}
	return list
}

const wantOutput = "21\n144 1 1\n506\n31.75\n24 4.5\n78\n20\n77 4\n"

var builds = []struct {
	name  string
	kind  arch.ThunkKind
	flags string
	cpu   string
}{
	{"graph", arch.ThunkGraph, "-fpatchable-function-entry=2", "cortex-a53"},
	{"graph, branch protection", arch.ThunkGraph, "-fpatchable-function-entry=2 -mbranch-protection=standard", testtool.NewARM64},
	{"func", arch.ThunkFunc, "-fpatchable-function-entry=2", testtool.NewARM64},
	{"mcount", arch.ThunkMcount, "-pg", testtool.NewARM64},
	{"mcount-func", arch.ThunkMcountFunc, "-pg", "cortex-a53"},
}

// TestRunThunks runs programs with thunks: they compute what they did, every call
// is noted, and entries and exits belong together.
func TestRunThunks(t *testing.T) {
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) {
			h := buildHarness(t, b.kind, nil, b.flags)
			if out, events, _ := h.run(b.cpu); out != wantOutput || len(events) != 0 {
				t.Fatalf("not armed: %d events\n%s", len(events), out)
			}
			out, events, bt := h.run(b.cpu, "1")
			if out != wantOutput {
				t.Fatalf("armed:\n%s", out)
			}
			calls := map[string]int{}
			var stack []uint32
			open := 0
			for i, e := range events {
				id := e &^ (1 << 31)
				if id == 0 || int(id) > len(h.funcs) {
					t.Fatalf("event %d: id %#x", i, e)
				}
				if e == id {
					calls[h.funcs[id-1].Name]++
					stack = append(stack, id)
					continue
				}
				if len(stack) == 0 || stack[len(stack)-1] != id {
					t.Fatalf("event %d: the exit of %s while %v are open", i, h.funcs[id-1].Name, stack)
				}
				stack = stack[:len(stack)-1]
			}
			if b.kind == arch.ThunkGraph || b.kind == arch.ThunkMcount {
				open = 2 // the two that pthread_exit left
			} else {
				open = len(events)
			}
			if len(stack) != open {
				t.Errorf("%d calls are open, want %d", len(stack), open)
			}
			for name, n := range map[string]int{"fib": 233, "even": 501 + 39, "odd": 500 + 39, "outer": 1, "leaf": 2, "many": 1, "huge": 1, "leaves": 1} {
				if calls[name] != n {
					t.Errorf("%d calls of %s, want %d", calls[name], name, n)
				}
			}
			// The program's own frame descriptions are right: they lead to the thunks.
			want := []string{"walker", "mid", "outer", "main"}
			if b.kind == arch.ThunkGraph || b.kind == arch.ThunkMcount {
				want = []string{"walker", "back walker+4", "mid", "back mid+4", "outer", "back outer+4", "main"}
			}
			if got := h.names(bt); !slices.Equal(got, want) {
				t.Errorf("backtrace %v, want %v", got, want)
			}
			if b.kind == arch.ThunkGraph { // a function that enter leaves alone
				id := slices.IndexFunc(h.funcs, func(s elf.Symbol) bool { return s.Name == "mid" }) + 1
				out, skipped, bt := h.run(b.cpu, "1", fmt.Sprint(id))
				if out != wantOutput || len(skipped) != len(events)-2 || slices.Contains(skipped, uint32(id)) {
					t.Errorf("without mid: %d events of %d\n%s", len(skipped), len(events), out)
				}
				if got := h.names(bt); !slices.Equal(got, slices.DeleteFunc(want, func(s string) bool { return s == "back mid+4" })) {
					t.Errorf("without mid: backtrace %v", got)
				}
			}
		})
	}
}

// trap puts a brk at address addr and returns the backtrace that the program's
// signal handler sees there, from there to main.
func (h *harness) trap(addr uint64, cpu string, args ...string) []string {
	h.t.Helper()
	b := h.at(addr)
	old := bytes.Clone(b[:InstLen])
	copy(b, code(0xd4200020))
	cmd := h.command(cpu, args...)
	copy(b, old)
	out, _ := cmd.Output()
	if cmd.ProcessState.ExitCode() != 3 {
		h.t.Fatalf("%#x: the program has not come there: %v\n%s", addr, cmd.ProcessState, out)
	}
	var addrs []uint64
	for line := range strings.Lines(string(out)) {
		if v, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(line), "0x"), 16, 64); err == nil {
			addrs = append(addrs, v)
		}
	}
	if i := slices.Index(addrs, addr); i >= 0 {
		return h.names(addrs[i:])
	}
	h.t.Errorf("%#x is not in %#x", addr, addrs)
	return nil
}

// TestUnwindThunks looks at backtraces from every instruction of a thunk.
func TestUnwindThunks(t *testing.T) {
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			h := buildHarness(t, b.kind, nil, b.flags)
			th := &h.thunks[slices.IndexFunc(h.funcs, func(s elf.Symbol) bool { return s.Name == "outer" })]
			var armed, back []uint64
			bypass := uint64(funcBody)
			switch b.kind {
			case arch.ThunkGraph:
				armed, bypass = []uint64{0, 4, 8, 12, 16, 20}, ThunkBypass
				back = []uint64{0, 4, 8, 12}
			case arch.ThunkMcount:
				armed = []uint64{0, 4, 8, 12, 16, 20, 24}
				back = []uint64{4, 8, 12}
			case arch.ThunkFunc:
				armed = []uint64{0, 4, 8, 12, 16, 20, 24, 28}
			case arch.ThunkMcountFunc:
				armed = []uint64{0, 4, 8, 12, 16, 20}
			}
			check := func(part string, at, off uint64, arg string) {
				want := []string{fmt.Sprintf("%s outer+%d", part, off), "main"}
				if part == "front" && (b.kind == arch.ThunkMcount || b.kind == arch.ThunkMcountFunc) {
					want = slices.Insert(want, 1, "outer") // the body is there already
				}
				if got := h.trap(at+off, b.cpu, arg); !slices.Equal(got, want) {
					t.Errorf("%s, at %d: %v, want %v", part, off, got, want)
				}
			}
			for _, off := range armed {
				check("front", th.Addr, off, "1")
			}
			for _, off := range back {
				check("back", th.Back, off, "1")
			}
			check("front", th.Addr, bypass, "0")
		})
	}
}

// TestUnwindCallers looks at backtraces from every instruction of traced functions
// whose frame descriptions have Callers' rules: the thunks are not in them.
func TestUnwindCallers(t *testing.T) {
	for _, b := range builds {
		if b.kind == arch.ThunkFunc || b.kind == arch.ThunkMcountFunc {
			continue // return addresses stay what they are
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			signed := strings.Contains(b.flags, "branch-protection")
			h := buildHarness(t, b.kind, &Callers{AnyShadow}, b.flags)
			out, _, bt := h.run(b.cpu, "1")
			if out != wantOutput {
				t.Errorf("output:\n%s", out)
			}
			want := []string{"walker", "mid", "outer", "main"}
			if signed { // their FDEs stay as they are
				want = []string{"walker", "back walker+4", "mid", "back mid+4", "outer", "back outer+4", "main"}
			}
			if got := h.names(bt); !slices.Equal(got, want) {
				t.Errorf("backtrace %v, want %v", got, want)
			}
			mid := h.syms["mid"]
			n := 0
			for addr := h.thunks[slices.IndexFunc(h.funcs, func(s elf.Symbol) bool { return s.Name == "mid" })].Body; addr < mid.Value+mid.Size; addr += InstLen {
				if addr < mid.Value || word32(h.at(addr)) == 0 {
					continue
				}
				got := slices.DeleteFunc(h.trap(addr, b.cpu, "1"), func(s string) bool { return signed && strings.HasPrefix(s, "back ") })
				if want := []string{"mid", "outer", "main"}; !slices.Equal(got, want) {
					t.Errorf("%#x: %v, want %v", addr, got, want)
				}
				n++
			}
			if n < 5 {
				t.Errorf("only %d instructions", n)
			}
		})
	}
}
