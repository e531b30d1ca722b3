package tracee

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/cost"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/symbol"
)

// An abandoned process is one with a program and a library that have been attached to, as files: what it has at an address is at that
// offset of one.
type abandoned struct {
	ts       *threads
	ms       []mapping
	files    map[string][]byte
	journals []area // of the program and the library
	noted    [][]byte
	edited   []arch.Edit // what was changed
}

const abandonedCode = `
int count;
__attribute__((noinline)) int leaf(int n) { count++; return n + 1; }
__attribute__((noinline)) int middle(int n) { int r = leaf(n); count++; return r; }
__attribute__((noinline)) int outer(int n) { int r = middle(n) + leaf(n); count++; return r; }
__attribute__((noinline)) long call(long nr)
{
	long r;
	__asm__ volatile("mov %1, %%rax; syscall" : "=&a"(r) : "g"(nr) : "rcx", "r11", "memory");
	return r;
}
int main(void) { return outer(1) + call(39); }
`

// newAbandoned makes one by what puts plans into processes.
func newAbandoned(t testing.TB) *abandoned {
	t.Helper()
	mem, err := os.Create(filepath.Join(t.TempDir(), "mem"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mem.Close() })
	p := &abandoned{ts: &threads{pid: os.Getpid(), mem: mem}, files: make(map[string][]byte)} // its files are found below the root of this one
	const library = 0x10000000
	program := p.image(t, testtool.Compile(t, "program", abandonedCode, "-O1", "-fpatchable-function-entry=5", "-no-pie"), 0)
	shared := p.image(t, testtool.Compile(t, "library", abandonedCode, "-O1", "-fpatchable-function-entry=5", "-shared", "-fPIC"), library)
	shared.library = &Library{lo: library, hi: library, key: "no key"}
	for _, m := range p.ms {
		if m.lo == library {
			shared.library.key = m.key
		}
		if m.lo >= library {
			shared.library.hi = max(shared.library.hi, m.hi)
		}
	}
	for i, im := range []*image{program, shared} {
		if err := im.note(nil); err != nil {
			t.Fatal(err)
		}
		for _, e := range im.planned() {
			if err := p.ts.memory().WriteAt(e.New, e.Addr); err != nil {
				t.Fatal(err)
			}
			p.edited = append(p.edited, e)
		}
		size, notes := pageUp(uint64(len(im.m.RX))), uint64(len(im.notes))
		p.mapped(im.bias+im.m.RWAddr, pageUp(im.m.RWSize), "rw-p")
		p.mapped(im.bias+im.m.RXAddr, size, "r-xp")
		p.mapped(im.journal, notes, "r--p")
		p.journals = append(p.journals, area{im.journal, notes})
		var stack *remoteStack
		if i == 0 {
			at := im.journal + notes + PageSize
			stack = &remoteStack{lo: at, hi: at + remoteStackSize}
			p.mapped(at, remoteStackSize, "rw-p")
		}
		if err := im.begin(p.ts.memory(), stack); err != nil {
			t.Fatal(err)
		}
		if err := im.complete(p.ts.memory()); err != nil {
			t.Fatal(err)
		}
	}
	// A hook where the program begins, and memory that is nobody's.
	last := slices.MaxFunc(p.ms, func(a, b mapping) int { return cmp.Compare(a.hi, b.hi) }).hi
	p.mapped(last+PageSize, PageSize, "r-xp")
	p.mapped(last+4*PageSize, 16*PageSize, "rw-p")
	entry := program.m.OrigEntry
	hook := arch.Edit{Addr: entry, Old: make([]byte, 5), New: []byte{0xe9, 1, 2, 3, 4}}
	if err := p.ts.memory().ReadAt(hook.Old, entry); err != nil {
		t.Fatal(err)
	}
	if err := program.noteHooks(p.ts.memory(), []area{{last + PageSize, PageSize}}, []arch.Edit{hook}); err != nil {
		t.Fatal(err)
	}
	if err := p.ts.memory().WriteAt(hook.New, entry); err != nil {
		t.Fatal(err)
	}
	p.edited = append(p.edited, hook)
	// A word by which unwinders are led, in what can only be read of the program.
	for _, m := range p.ms {
		if m.path != "" && m.lo < library && m.perms == "r--p" {
			led := findHook{at: m.lo + 0x100, was: entry, to: program.bias + program.m.RXAddr + 8}
			p.led(t, program, led)
			break
		}
	}
	if err := mem.Truncate(int64(last + 1<<20)); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(p.ms, func(a, b mapping) int { return cmp.Compare(a.lo, b.lo) })
	for _, j := range p.journals {
		b := make([]byte, j.size)
		if err := p.ts.memory().ReadAt(b, j.at); err != nil {
			t.Fatal(err)
		}
		p.noted = append(p.noted, b)
	}
	return p
}

// led has unwinders be led to an image by a word, and notes that.
func (p *abandoned) led(t testing.TB, im *image, h findHook) {
	t.Helper()
	for i, w := range h.words() {
		if err := p.ts.memory().WriteAt(le.AppendUint64(nil, *w), im.journal+8*uint64(jFinder+i)); err != nil {
			t.Fatal(err)
		}
	}
	e := h.edit()
	if err := p.ts.memory().WriteAt(e.New, e.Addr); err != nil {
		t.Fatal(err)
	}
	p.edited = append(p.edited, e)
}

func (p *abandoned) mapped(at, size uint64, perms string) {
	if size > 0 {
		p.ms = append(p.ms, mapping{lo: at, hi: at + size, perms: perms, key: "00000000 00:00 0"})
	}
}

// image maps a file, and plans it.
func (p *abandoned) image(t testing.TB, file string, bias uint64) *image {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p.files[file] = b
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	s := st.Sys().(*syscall.Stat_t)
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, pr := range f.Progs {
		if pr.Type != elf.PT_LOAD {
			continue
		}
		perms := []byte("r--p")
		if pr.Flags&elf.PF_W != 0 {
			perms[1] = 'w'
		}
		if pr.Flags&elf.PF_X != 0 {
			perms[2] = 'x'
		}
		lo, off := (bias+pr.Vaddr)&^(PageSize-1), pr.Off&^(PageSize-1)
		hi := pageUp(bias + pr.Vaddr + pr.Filesz)
		p.ms = append(p.ms, mapping{
			lo: lo, hi: hi, perms: string(perms), path: file,
			key: fmt.Sprintf("%08x %02x:%02x %d", off, unix.Major(s.Dev), unix.Minor(s.Dev), s.Ino),
		})
		if err := p.ts.memory().WriteAt(b[off:min(off+hi-lo, uint64(len(b)))], lo); err != nil {
			t.Fatal(err)
		}
	}
	sites, err := record.Find(f, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := symbol.New(f)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := record.Syscalls(f, symbols)
	if err != nil || len(calls) == 0 {
		t.Fatalf("%d system calls, %v", len(calls), err)
	}
	o := patch.Options{Target: patch.Process, Running: true, Keep: true, Syscalls: &calls}
	if bias != 0 {
		o.Copy, o.At = true, 0x1000000
	}
	plan, err := patch.New(f, sites, o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := plan.Memory()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Running.Waits) == 0 || len(m.Edits) < 4 {
		t.Fatalf("%d edits, %d waits", len(m.Edits), len(m.Running.Waits))
	}
	return &image{m: m, bias: bias}
}

// found reads what the process says of itself.
func (p *abandoned) found() (*Attachment, error) {
	js, err := p.ts.journals(p.ms)
	if err != nil {
		return nil, err
	}
	if len(js) == 0 || js[0].word(jKind) != kindHome {
		return nil, nil
	}
	return p.ts.found(p.ms, js)
}

// wrong returns what is not so of what was found, by the mappings and the files.
func (p *abandoned) wrong(a *Attachment) string {
	all := a.whole()
	for i, m := range all.mapped {
		in := p.in(m.at)
		if in == nil || in.path != "" || in.hi-m.at < m.size || in.perms == "---p" {
			return fmt.Sprintf("%+v is not memory of its own", m)
		}
		if slices.ContainsFunc(all.mapped[:i], func(o area) bool { return m.at < o.at+o.size && o.at < m.at+m.size }) {
			return fmt.Sprintf("%+v is there twice", m)
		}
	}
	for _, e := range all.edits {
		in := p.in(e.Addr)
		if in == nil || in.hi < endOf(&e) || !in.isFileCode() {
			return fmt.Sprintf("%#x is no code of a file", e.Addr)
		}
		off, err := in.offset()
		if err != nil {
			return err.Error()
		}
		if e.Addr == a.hooks.finder.at {
			if to := p.in(a.hooks.finder.was); to == nil || to.file() != in.file() || !to.isCode() {
				return fmt.Sprintf("%#x, which was at %#x, is no code of that file", a.hooks.finder.was, e.Addr)
			}
		} else if b := p.files[in.path][off+int64(e.Addr-in.lo):]; !bytes.HasPrefix(b, e.Old) {
			return fmt.Sprintf("what the file has for %#x is not % x", e.Addr, e.Old)
		}
		now := make([]byte, len(e.New))
		if p.ts.memory().ReadAt(now, e.Addr) != nil || !bytes.Equal(now, e.New) {
			return fmt.Sprintf("what is at %#x is not % x", e.Addr, e.New)
		}
	}
	return ""
}

// in is the mapping that an address is in.
func (p *abandoned) in(addr uint64) *mapping {
	i := slices.IndexFunc(p.ms, func(m mapping) bool { return m.lo <= addr && addr < m.hi })
	if i < 0 {
		return nil
	}
	return &p.ms[i]
}

// FuzzJournals: whatever a process says of the tracer in it, what is believed agrees with its mappings and files.
func FuzzJournals(f *testing.F) {
	p := newAbandoned(f)
	whole, err := p.found()
	if err != nil {
		f.Fatal(err)
	}
	if got := whole.whole(); len(whole.images) != 2 || len(got.edits) != len(p.edited) || whole.images[0].stack.size == 0 || len(whole.hooks.pages()) != 1 {
		f.Fatalf("%d images with %d edits of %d, %+v", len(whole.images), len(got.edits), len(p.edited), whole.images[0])
	}
	n := 0 // bytes of files that are mapped
	for _, m := range p.ms {
		n += int(m.hi - m.lo)
	}
	f.Add(p.noted[0], p.noted[1], uint64(0))
	f.Add(p.noted[0], p.noted[1], p.edited[0].Addr) // which somebody else has changed since
	f.Add(p.noted[0], p.noted[1], p.edited[0].Addr+1000)
	f.Add(p.noted[0], []byte{}, uint64(0))
	f.Add(p.noted[1], p.noted[0], uint64(0))
	for _, word := range []int{jState, jRW, jRX, jRX + 1, jStack, jKind, jBias, jLibrary, jSum, jEdits, jEdits + 1, jWaits, jKey, jTraced, jRunning + 1, jFinder, jFinder + 1, jFinder + 2} {
		for i := range p.noted {
			for _, v := range []uint64{1, 1 << 12, 1 << 32, 1 << 63} {
				forged := [][]byte{bytes.Clone(p.noted[0]), bytes.Clone(p.noted[1])}
				setWord(forged[i], word, le.Uint64(forged[i][8*word:])+v)
				f.Add(forged[0], forged[1], uint64(0))
			}
		}
	}
	f.Fuzz(func(t *testing.T, home, more []byte, foreign uint64) {
		for i, b := range [][]byte{home, more} {
			b = append(bytes.Clone(b), make([]byte, p.journals[i].size)...)[:p.journals[i].size]
			if err := p.ts.memory().WriteAt(b, p.journals[i].at); err != nil {
				t.Fatal(err)
			}
		}
		is := make([]byte, 1)
		if m := p.in(foreign); m != nil && m.isFileCode() && p.ts.memory().ReadAt(is, foreign) == nil {
			if err := p.ts.memory().WriteAt([]byte{^is[0]}, foreign); err != nil {
				t.Fatal(err)
			}
			defer p.ts.memory().WriteAt(is, foreign)
		}
		var a *Attachment
		var err error
		cost.Check(t, len(home)+len(more)+n, 64, func() { a, err = p.found() })
		switch {
		case err != nil:
			if a != nil || !strings.Contains(err.Error(), "whose recorder has ended") {
				t.Errorf("%v: %v", a, err)
			}
		case a != nil:
			if said := p.wrong(a); said != "" {
				t.Error(said)
			}
		}
	})
}

// A few bytes that name much, of a large file, are not believed: what they make the reader keep and read has a limit.
func TestJournalLimits(t *testing.T) {
	p := newAbandoned(t)
	const size, at = 4 * mostNamed, 0x100000000
	file := filepath.Join(t.TempDir(), "large")
	if err := errors.Join(os.WriteFile(file, nil, 0o666), os.Truncate(file, size), p.ts.mem.Truncate(at+size)); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	s := st.Sys().(*syscall.Stat_t)
	p.ms = append(p.ms, mapping{lo: at, hi: at + size, perms: "r--p", path: file,
		key: fmt.Sprintf("%08x %02x:%02x %d", 0, unix.Major(s.Dev), unix.Minor(s.Dev), s.Ino)})
	for _, tt := range []struct {
		name    string
		n, long uint64 // edits
		read    uint64 // what was read before
		want    error
	}{
		{"little", 4, 1 << 20, 0, nil},
		{"long edits", mostNamed>>22 + 1, 1 << 22, 0, errCode},
		{"many edits", mostNamed/leastNamed + 1, 1, 0, errCode},
		{"far from each other", 4, 8, mostRead - 3*windowSize, errCode},
		{"as far as they may be", 4, 8, mostRead - 4*windowSize, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &finder{ts: p.ts, ms: p.ms, files: make(map[mapping]*os.File), read: tt.read}
			defer f.close()
			var list []byte
			h := fnv.New64a()
			gap := uint64(2 * windowSize)
			if tt.n*gap > size {
				gap = 1
			}
			for i, skip := uint64(0), uint64(at); i < tt.n; i, skip = i+1, gap {
				list = binary.AppendUvarint(list, skip)
				list = binary.AppendUvarint(list, tt.long*editKinds+editTable)
				h.Write(make([]byte, tt.long))
			}
			if _, err := f.edits(list, tt.n, h.Sum64(), area{0, ^uint64(0)}); err != tt.want {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}
