package patch_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
)

const source = `
#include <stdio.h>
#define NI __attribute__((noinline))
NI int leaf(int x) { __asm__ volatile(""); return x + 1; }
NI int mid(int x) { int r = leaf(x); __asm__ volatile(""); return r * 2; }
int main(int argc, char **argv) { printf("%d\n", mid(argc)); return mid(argc) & 127; }
`

// compile builds source and returns the file's name, or skips.
func compile(t testing.TB, flags ...string) string {
	t.Helper()
	return onAMD64.compile(t, "p.c", source, flags...)
}

func plan(t testing.TB, image []byte, o patch.Options) *patch.Plan {
	t.Helper()
	p, err := newPlan(image, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newPlan(image []byte, o patch.Options) (*patch.Plan, error) {
	return newPlanWith(image, o, record.Options{Plain: record.PlainNone})
}

func newPlanWith(image []byte, o patch.Options, find record.Options) (*patch.Plan, error) {
	f, err := elfio.Parse(image)
	if err != nil {
		return nil, err
	}
	sites, err := record.Find(f, find)
	if err != nil {
		return nil, err
	}
	return patch.New(f, sites, o)
}

func edits(t testing.TB, p *patch.Plan) []arch.Edit {
	t.Helper()
	e, err := p.Edits()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// run starts an image in a directory of its own and gives its output and status.
func run(t *testing.T, on *target, image []byte) (string, int, string) {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "p")
	if err := runfile.WriteFile(name, image); err != nil {
		t.Fatal(err)
	}
	cmd := on.command(t, name)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode(), dir
}

func TestPatchedProgramsBehaveAndUndo(t *testing.T) {
	for _, on := range targets {
		for name, flags := range on.kinds {
			for _, tracer := range []patch.Tracer{patch.FunctionGraph, patch.Function, patch.Profile, patch.Count} {
				t.Run(on.name+"/"+name+"/"+tracer.String(), func(t *testing.T) {
					t.Parallel()
					testPatched(t, on, flags, tracer)
				})
			}
		}
	}
}

func testPatched(t *testing.T, on *target, flags []string, tracer patch.Tracer) {
	orig := read(t, on.compile(t, "p.c", source, flags...))
	p := plan(t, orig, patch.Options{Tracer: tracer})
	out, err := p.Image()
	if err != nil {
		t.Fatal(err)
	}
	again, err := plan(t, orig, patch.Options{Tracer: tracer}).Image()
	if err != nil || !bytes.Equal(out, again) {
		t.Errorf("the same plan gave another file (%v)", err)
	}
	want, status, _ := run(t, on, orig)
	got, st, dir := run(t, on, out)
	if got != want || st != status {
		t.Errorf("patched: %q, status %d; original: %q, status %d", got, st, want, status)
	}
	counts := callsOf(t, dir, p)
	if want := map[string]uint64{"main": 1, "mid": 2, "leaf": 2}; !maps.Equal(counts, want) {
		t.Errorf("calls %v, want %v", counts, want)
	}
	in, err := patch.Verify(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Sites) != 3 || in.Tracer != tracer || in.ImageID != p.ImageID {
		t.Errorf("verify: %+v", in)
	}
	back, err := patch.Undo(out)
	if err != nil || !bytes.Equal(back, orig) {
		t.Errorf("undo did not give the original back (%v)", err)
	}
}

// names are the functions of a plan by their ids.
func names(p *patch.Plan) map[uint32]string {
	m := map[uint32]string{}
	for _, f := range p.Functions {
		if f.ID != 0 {
			m[f.ID] = f.Name
		}
	}
	return m
}

// Unwind rules read code, so that of a patched program can be read.
func TestExecuteOnly(t *testing.T) {
	orig := executeOnly(t, read(t, compile(t, "-pg", "-mfentry")))
	out, err := plan(t, orig, patch.Options{}).Image()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(out)
	if err != nil {
		t.Fatal(err)
	}
	for i, pr := range f.Progs {
		if pr.Type == elf.PT_LOAD && pr.Flags&elf.PF_X != 0 && pr.Flags != elf.PF_X|elf.PF_R {
			t.Errorf("segment %d: %v", i, pr.Flags)
		}
	}
	if back, err := patch.Undo(out); err != nil || !bytes.Equal(back, orig) {
		t.Errorf("undo did not give the original back (%v)", err)
	}
}

// executeOnly makes an image's code unreadable, as lld --execute-only does.
func executeOnly(t *testing.T, image []byte) []byte {
	t.Helper()
	f, err := elfio.Parse(image)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i, pr := range f.Progs {
		if pr.Type == elf.PT_LOAD && pr.Flags == elf.PF_X|elf.PF_R {
			binary.LittleEndian.PutUint32(image[int(f.Header.Phoff)+56*i+4:], uint32(elf.PF_X))
			n++
		}
	}
	if n == 0 {
		t.Fatal("no code that can only be read and executed")
	}
	return image
}

func TestBuildID(t *testing.T) {
	orig := read(t, compile(t, "-pg", "-mfentry", "-Wl,--build-id=sha1"))
	out, err := plan(t, orig, patch.Options{}).Image()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(out)
	if err != nil {
		t.Fatal(err)
	}
	o, _ := elfio.Parse(orig)
	if bytes.Equal(f.BuildID(), o.BuildID()) || len(f.BuildID()) != len(o.BuildID()) {
		t.Errorf("build-id %x, was %x", f.BuildID(), o.BuildID())
	}
	in, err := patch.Inspect(f)
	if err != nil || !bytes.Equal(in.BuildID, o.BuildID()) {
		t.Errorf("original build-id %x, want %x (%v)", in.BuildID, o.BuildID(), err)
	}
}

func TestSelection(t *testing.T) {
	orig := read(t, compile(t, "-pg", "-mfentry", "-no-pie", "-fno-pie"))
	sel, err := record.NewFilter([]string{"lea*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := plan(t, orig, patch.Options{Select: sel})
	acts := map[string]patch.Action{}
	for _, f := range p.Functions {
		acts[f.Name] = f.Action
	}
	if acts["leaf"] != patch.Trace || acts["mid"] != patch.Nop || acts["main"] != patch.Nop || acts["_start"] != patch.Leave {
		t.Errorf("actions %v", acts)
	}
	keep := plan(t, orig, patch.Options{Select: sel, Keep: true})
	code := slices.DeleteFunc(edits(t, keep), func(e arch.Edit) bool { return e.Reason == "unwind" })
	if len(code) != 1 {
		t.Errorf("%d edits, want 1", len(code))
	}
	none, err := record.NewFilter([]string{"nothing"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newPlan(orig, patch.Options{Select: none}); !errors.Is(err, patch.ErrNoSites) {
		t.Errorf("error %v, want ErrNoSites", err)
	}
	if _, err := newPlan(orig, patch.Options{Roots: none}); !errors.Is(err, patch.ErrNoSites) {
		t.Errorf("roots: error %v, want ErrNoSites", err)
	}
}

func TestMismatchIsFoundBeforeAnythingIsWritten(t *testing.T) {
	orig := read(t, compile(t, "-fpatchable-function-entry=5"))
	f, err := elfio.Parse(orig)
	if err != nil {
		t.Fatal(err)
	}
	sites, err := record.Find(f, record.Options{Plain: record.PlainNone})
	if err != nil {
		t.Fatal(err)
	}
	for i := range sites {
		if sites[i].Name == "mid" {
			sites[i].Bytes = []byte{0xe8, 1, 2, 3, 4}
		}
	}
	_, err = patch.New(f, sites, patch.Options{})
	var mm *arch.Bug
	if !errors.As(err, &mm) || mm.Class != arch.Mismatch || mm.Site.Name != "mid" {
		t.Fatalf("error %v, want a mismatch in mid", err)
	}
	if s := err.Error(); !strings.Contains(s, "actual 90:90:90:90:90, expected e8:01:02:03:04") {
		t.Errorf("message %q", s)
	}
	// The file changes between planning and applying.
	p := plan(t, orig, patch.Options{})
	off, _ := f.Offset(edits(t, p)[0].Addr)
	orig[off] ^= 0xff
	if _, err := p.Image(); !errors.As(err, &mm) {
		t.Errorf("error %v, want a mismatch", err)
	}
}

func TestProcessPlan(t *testing.T) {
	orig := read(t, compile(t, "-pg", "-mfentry"))
	p := plan(t, orig, patch.Options{Target: patch.Process, Threshold: time.Microsecond})
	if _, err := p.Image(); err == nil {
		t.Error("a plan for a process made a file")
	}
	m, err := p.Memory()
	if err != nil {
		t.Fatal(err)
	}
	if m.RXAddr%4096 != 0 || m.RWAddr%4096 != 0 || m.RWAddr+m.RWSize > m.RXAddr {
		t.Errorf("rx %#x, rw %#x+%#x", m.RXAddr, m.RWAddr, m.RWSize)
	}
	if m.PhdrAddr < m.RXAddr || m.PhdrAddr+uint64(m.Phnum)*56 > m.RXAddr+uint64(len(m.RX)) {
		t.Errorf("program headers at %#x outside the added memory", m.PhdrAddr)
	}
	var loads, eh int
	for i := 0; i < m.Phnum; i++ {
		b := m.RX[m.PhdrAddr-m.RXAddr+uint64(i)*56:]
		switch elf.ProgType(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24) {
		case elf.PT_LOAD:
			loads++
		case elf.PT_GNU_EH_FRAME:
			eh++
		}
	}
	f, _ := elfio.Parse(orig)
	for _, pr := range f.Progs {
		if pr.Type == elf.PT_LOAD {
			loads--
		}
	}
	if loads != 2 || eh != 1 {
		t.Errorf("%d added segments and %d unwind tables, want 2 and 1", loads, eh)
	}
	if _, err := plan(t, orig, patch.Options{}).Memory(); err == nil {
		t.Error("a plan for a file made process memory")
	}
}

// Where a static program reads its program headers by its mapped ELF header, that leads to the added ones.
func TestProcessHeaders(t *testing.T) {
	const start = "\nchar said[] = %q; void _start(void) { mid(0); for (;;) ; }\n"
	const reads, fixed = "Fatal glibc error: Cannot allocate TLS block\n", "Fatal glibc error: %s:%s (%s): assertion failed: %s\n"
	for _, tt := range []struct {
		name, said string
		flags      []string
		want       bool
	}{
		{"read", reads, []string{"-static"}, true},
		{"read, position-independent", reads, []string{"-static-pie", "-fpie"}, true},
		{"not read", reads + "\x00" + fixed, []string{"-static"}, false},
		{"another C library", "hello", []string{"-static"}, false},
		{"dynamic", reads, []string{"-pie", "-fpie"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "int mid(int n) { return n + 1; }" + strings.ReplaceAll(fmt.Sprintf(start, tt.said), `\x00`, `\0`)
			orig := read(t, onAMD64.compile(t, "p.c", text, append(tt.flags, "-nostdlib", "-pg", "-mfentry", "-Wl,--defsym=__fentry__=_start")...))
			for _, running := range []bool{false, true} {
				p, err := newPlan(orig, patch.Options{Target: patch.Process, Running: running})
				if running && err != nil {
					continue // it cannot be attached to
				}
				if err != nil {
					t.Fatal(err)
				}
				m, err := p.Memory()
				if err != nil {
					t.Fatal(err)
				}
				f, err := elfio.Parse(orig)
				if err != nil {
					t.Fatal(err)
				}
				base := f.Progs[slices.IndexFunc(f.Progs, func(pr elfio.Prog) bool { return pr.Type == elf.PT_LOAD })].Vaddr
				header := bytes.Clone(orig[:64])
				for _, e := range m.Edits {
					if e.Addr-base < 64 {
						copy(header[e.Addr-base:], e.New)
					}
				}
				if !tt.want || running {
					if !bytes.Equal(header, orig[:64]) {
						t.Errorf("running %v: the ELF header changes", running)
					}
					continue
				}
				at, n := base+binary.LittleEndian.Uint64(header[32:]), binary.LittleEndian.Uint16(header[56:])
				if at != m.PhdrAddr || int(n) != m.Phnum {
					t.Errorf("%d program headers at %#x, want %d at %#x", n, at, m.Phnum, m.PhdrAddr)
				}
			}
		})
	}
}

// A process on arm64 gets the runtime's thread-local memory in its PT_TLS, and what
// is added within reach.
func TestProcessPlanARM64(t *testing.T) {
	for name, text := range map[string]string{"tls": threads, "no-tls": source} {
		orig := read(t, onARM64.compile(t, "p.c", text, "-fpatchable-function-entry=2", "-pthread"))
		m, err := plan(t, orig, patch.Options{Target: patch.Process}).Memory()
		if err != nil {
			t.Fatal(err)
		}
		f, err := elfio.Parse(orig)
		if err != nil {
			t.Fatal(err)
		}
		size := func(typ elf.ProgType, progs []elfio.Prog) (n uint64) {
			for _, p := range progs {
				if p.Type == typ {
					n = p.Memsz
				}
			}
			return n
		}
		var progs []elfio.Prog
		for i := range m.Phnum {
			b := m.RX[m.PhdrAddr-m.RXAddr+uint64(i)*56:]
			progs = append(progs, elfio.Prog{Type: elf.ProgType(binary.LittleEndian.Uint32(b)), Memsz: binary.LittleEndian.Uint64(b[40:])})
		}
		before, after := size(elf.PT_TLS, f.Progs), size(elf.PT_TLS, progs)
		if after != (before+7)&^7+8 {
			t.Errorf("%s: PT_TLS of %#x bytes, was %#x", name, after, before)
		}
		for _, e := range m.Edits {
			if d := int64(m.RXAddr - e.Addr); d <= 0 || d > 100<<20 {
				t.Errorf("%s: site %#x, memory at %#x", name, e.Addr, m.RXAddr)
			}
		}
		if m.RXAddr%(1<<16) != 0 || m.RWAddr%(1<<16) != 0 {
			t.Errorf("%s: memory at %#x and %#x is not aligned to pages of 64 KiB", name, m.RXAddr, m.RWAddr)
		}
	}
}

func TestPlanText(t *testing.T) {
	p := plan(t, read(t, compile(t, "-pg", "-mfentry")), patch.Options{})
	var b bytes.Buffer
	if err := p.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"function_graph", "trace    3 functions", "mid", "-> e9"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("plan lacks %q:\n%s", want, b.String())
		}
	}
	j, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Tracer    string
		Edits     []struct{ Addr, Old, New, Func, Reason string }
		Functions []struct{ Name, Action, Reason string }
	}
	if err := json.Unmarshal(j, &v); err != nil {
		t.Fatal(err)
	}
	if v.Tracer != "function_graph" || len(v.Edits) != 4 || v.Edits[3].Reason != "unwind" || len(v.Functions) < 3 {
		t.Errorf("json: %s", j)
	}
}

func TestRefusals(t *testing.T) {
	orig := read(t, compile(t, "-pg", "-mfentry"))
	out, err := plan(t, orig, patch.Options{}).Image()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newPlan(out, patch.Options{}); err == nil {
		t.Error("a patched image was patched again")
	}
	if _, err := patch.Verify(orig); !errors.Is(err, patch.ErrNotPatched) {
		t.Errorf("verify of an original: %v", err)
	}
	if _, err := patch.Undo(orig); err == nil {
		t.Error("undo of an original worked")
	}
	broken := bytes.Clone(out)
	f, _ := elfio.Parse(out)
	in, err := patch.Inspect(f)
	if err != nil {
		t.Fatal(err)
	}
	off, _ := f.Offset(in.Sites[1].Addr)
	broken[off+1] ^= 1
	if _, err := patch.Verify(broken); err == nil {
		t.Error("a site that leads elsewhere was not noticed")
	}
	plain := read(t, compile(t))
	if _, err := newPlan(plain, patch.Options{}); !errors.Is(err, patch.ErrNoSites) {
		t.Errorf("program without sites: %v", err)
	}
}

func TestAppendedData(t *testing.T) {
	orig := append(read(t, compile(t, "-pg", "-mfentry")), "PK\x05\x06 an archive"...)
	if _, err := newPlan(orig, patch.Options{}); !errors.Is(err, patch.ErrOverlay) {
		t.Errorf("error %v, want ErrOverlay", err)
	}
	if _, err := newPlan(orig, patch.Options{Target: patch.Process}); err != nil {
		t.Errorf("plan for a process: %v", err)
	}
	out, err := plan(t, orig, patch.Options{Overlay: true}).Image()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := patch.Undo(out); err != nil || !bytes.Equal(back, orig) {
		t.Errorf("undo did not give the original back (%v)", err)
	}
	filled := append(read(t, compile(t, "-pg", "-mfentry")), make([]byte, 12345)...)
	if out, err = plan(t, filled, patch.Options{}).Image(); err != nil {
		t.Fatalf("with zeroes behind it: %v", err)
	}
	if back, err := patch.Undo(out); err != nil || !bytes.Equal(back, filled) {
		t.Errorf("undo did not give what has zeroes behind it back (%v)", err)
	}
}

func TestPlanGivesItsFileTwice(t *testing.T) {
	p := plan(t, read(t, compile(t, "-fpatchable-function-entry=5")), patch.Options{})
	first, err := p.Image()
	if err != nil {
		t.Fatal(err)
	}
	second, err := p.Image()
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("the second image differs (%v)", err)
	}
}
