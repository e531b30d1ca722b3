//go:build linux

package stacks

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/symbol"
)

// A Process is a running process whose stacks are read. It is not safe for concurrent use.
type Process struct {
	PID      int
	Exe      string // path of its program
	symbols  symbol.Options
	mem      *pages // of code and tables, which do not change
	mappings []mapping
	images   []*image
	rows     map[uint64]*ehframe.Frame // that were looked up, by address; nil: there is none
}

// mostRows bounds the rows that are kept.
const mostRows = 1 << 13

// A mapping is a line of /proc/PID/maps.
type mapping struct {
	lo, hi, off uint64
	readable    bool
	writable    bool
	inode       uint64
	path        string
}

// An image is a program or library in memory.
type image struct {
	path    string
	inode   uint64
	lo, hi  uint64 // of its segments
	bias    uint64
	header  uint64      // of the search table, 0: none
	notes   [][2]uint64 // where they are, and how many bytes
	buildID string
	idRead  bool
	main    bool
	symbols *symbol.Table
	tried   bool // to open the symbols

	// Of an image without a search table the entries of its file are read.
	entries *ehframe.Index
	mapped  *mapped.File
	read    bool // or it was tried
}

// ErrMachine is wrapped by the errors of Open on machines whose stacks cannot be read.
var ErrMachine = errors.New("stacks of this machine's processes cannot be read")

// Open looks at a process. o says where to look for names. The error wraps that of the system: of a process that is not
// there, or that this user may not look at.
func Open(pid int, o symbol.Options) (*Process, error) {
	if host == nil {
		return nil, ErrMachine
	}
	p := &Process{PID: pid, symbols: o, mem: newPages(pid)}
	var err error
	if p.Exe, err = os.Readlink(p.proc("exe")); err != nil {
		return nil, err
	}
	if err := p.refresh(); err != nil {
		return nil, err
	}
	return p, nil
}

// Close gives back what names were read from.
func (p *Process) Close() error {
	var errs []error
	for _, im := range p.images {
		if im.symbols != nil {
			errs = append(errs, im.symbols.Close())
		}
		if im.mapped != nil {
			errs = append(errs, im.mapped.Close())
		}
	}
	return errors.Join(errs...)
}

func (p *Process) proc(name string) string { return fmt.Sprintf("/proc/%d/%s", p.PID, name) }

// Threads are the ids of the threads, sorted. Those by which the kernel works for the process (io_uring, vhost) are not among
// them: they run none of its code.
func (p *Process) Threads() ([]int, error) {
	entries, err := os.ReadDir(p.proc("task"))
	if err != nil {
		return nil, err
	}
	var tids []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil && (tid == p.PID || !p.worker(tid)) {
			tids = append(tids, tid)
		}
	}
	slices.Sort(tids)
	return tids, nil
}

// worker tells whether a thread is one by which the kernel works for the process, by its flags (field 9 of proc_pid_stat(5);
// PF_IO_WORKER and PF_USER_WORKER of Linux's sched.h).
func (p *Process) worker(tid int) bool {
	const ioWorker, userWorker = 0x10, 0x4000
	stat, err := os.ReadFile(p.proc(fmt.Sprintf("task/%d/stat", tid)))
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // a name can hold anything
	if err != nil || len(f) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(string(f[6]), 10, 64)
	return err == nil && flags&(ioWorker|userWorker) != 0
}

// refresh reads what is mapped.
func (p *Process) refresh() error {
	text, err := os.ReadFile(p.proc("maps"))
	if err != nil {
		return err
	}
	p.mappings = parseMaps(text)
	clear(p.rows)
	for i := range p.mappings {
		m := &p.mappings[i]
		if m.off != 0 || !m.readable || m.path == "" || p.imageFrom(m.lo) != nil {
			continue
		}
		if im := p.readImage(m); im != nil {
			p.images = append(p.images, im)
		}
	}
	return nil
}

// parseMaps reads the lines of a maps file (proc(5)); malformed ones are left out.
func parseMaps(text []byte) []mapping {
	var out []mapping
	for line := range bytes.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(string(line), "\n"), " ", 6)
		if len(f) < 5 {
			continue
		}
		lo, hi, _ := strings.Cut(f[0], "-")
		var m mapping
		var errs [4]error
		m.lo, errs[0] = strconv.ParseUint(lo, 16, 64)
		m.hi, errs[1] = strconv.ParseUint(hi, 16, 64)
		m.off, errs[2] = strconv.ParseUint(f[2], 16, 64)
		m.inode, errs[3] = strconv.ParseUint(f[4], 10, 64)
		if errors.Join(errs[:]...) != nil || m.lo >= m.hi {
			continue
		}
		m.readable, m.writable = strings.HasPrefix(f[1], "r"), strings.HasPrefix(f[1][min(1, len(f[1])):], "w")
		if len(f) == 6 {
			m.path = strings.TrimLeft(f[5], " ")
		}
		out = append(out, m)
	}
	return out
}

// mapping returns the mapping that has an address, nil if none has.
func (p *Process) mapping(addr uint64) *mapping {
	i, ok := slices.BinarySearchFunc(p.mappings, addr, func(m mapping, addr uint64) int {
		switch {
		case m.hi <= addr:
			return -1
		case m.lo > addr:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &p.mappings[i]
}

// near implements space.
func (p *Process) near(a, b uint64) bool {
	m := p.mapping(a)
	return m != nil && b >= m.lo && b < m.hi
}

// imageFrom returns the image whose first segment is at an address.
func (p *Process) imageFrom(lo uint64) *image {
	for _, im := range p.images {
		if im.lo == lo {
			return im
		}
	}
	return nil
}

// maxProgs bounds an image's program headers.
const maxProgs = 256

// readImage looks whether a mapping begins with an ELF header. It returns nil if not, and for what it cannot read.
func (p *Process) readImage(m *mapping) *image {
	le := binary.LittleEndian
	h, err := p.mem.bytes(m.lo, 64)
	if err != nil || string(h[:4]) != elf.ELFMAG || h[elf.EI_CLASS] != byte(elf.ELFCLASS64) ||
		h[elf.EI_DATA] != byte(elf.ELFDATA2LSB) || elf.Machine(le.Uint16(h[18:])) != host.elf {
		return nil
	}
	im := &image{path: m.path, inode: m.inode, lo: m.lo}
	progs := p.programHeaders(m.lo+le.Uint64(h[32:]), le.Uint16(h[56:]))
	lowest, highest := extent(progs)
	if highest <= lowest {
		return nil
	}
	im.bias = m.lo - lowest&^(pageSize-1)
	im.hi = highest + im.bias
	if exe, err := os.Stat(p.proc("exe")); err == nil {
		im.main = inode(exe) == m.inode
	}
	if im.main { // what has been added to a program at its start has program headers of its own
		if at, n := p.auxiliary(); at != 0 {
			progs = p.programHeaders(at, n)
		}
	}
	for _, q := range progs {
		if q.Type == elf.PT_GNU_EH_FRAME && q.Memsz > 0 {
			im.header = q.Vaddr + im.bias
		}
		if q.Type == elf.PT_NOTE {
			im.notes = append(im.notes, [2]uint64{q.Vaddr + im.bias, q.Memsz})
		}
	}
	return im
}

// extent is where an image is loaded. The ELF header of a static program that is traced can lead to the tracer's segments,
// too, far away: they are in no file, so their offset is 0, as that of the first segment is.
func extent(progs []elf.ProgHeader) (lowest, highest uint64) {
	lowest = 1<<64 - 1
	for _, q := range progs {
		if q.Type == elf.PT_LOAD && (q.Off != 0 || highest == 0) {
			lowest, highest = min(lowest, q.Vaddr), max(highest, q.Vaddr+q.Memsz)
		}
	}
	return lowest, highest
}

// programHeaders reads n program headers, those that can be read.
func (p *Process) programHeaders(at uint64, n uint16) []elf.ProgHeader {
	const size = 56 // Elf64_Phdr
	le := binary.LittleEndian
	var out []elf.ProgHeader
	for i := range uint64(min(n, maxProgs)) {
		b, err := p.mem.bytes(at+i*size, size)
		if err != nil {
			break
		}
		out = append(out, elf.ProgHeader{Type: elf.ProgType(le.Uint32(b)), Flags: elf.ProgFlag(le.Uint32(b[4:])),
			Off: le.Uint64(b[8:]), Vaddr: le.Uint64(b[16:]), Memsz: le.Uint64(b[40:])})
	}
	return out
}

// auxiliary is where the program headers are by the auxiliary vector, and how many. That is on the stack, behind the
// arguments and the environment, where what adds to a program at its start changes it; /proc/PID/auxv stays what the
// kernel has made.
func (p *Process) auxiliary() (at uint64, n uint16) {
	const (
		atNull  = 0
		atPhdr  = 3
		atPhnum = 5
		most    = 1 << 20 // words of all
	)
	w := p.startOfStack()
	word := func() uint64 {
		v, err := p.mem.number(w, 8)
		if w += 8; err != nil {
			return 0
		}
		return v
	}
	if w == 0 {
		return 0, 0
	}
	word() // how many arguments
	for zeros, i := 0, 0; zeros < 2 && i < most; i++ {
		if word() == 0 {
			zeros++
		}
	}
	for range 64 {
		key, v := word(), word()
		switch key {
		case atNull:
			return at, n
		case atPhdr:
			at = v
		case atPhnum:
			n = uint16(v)
		}
	}
	return at, n
}

// startOfStack is the stack pointer that the program began with, 0 if it is not known.
func (p *Process) startOfStack() uint64 {
	b, err := os.ReadFile(p.proc("stat"))
	if err != nil {
		return 0
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	const startstack = 28 - 3 // field 28 of proc(5); the first one here is field 3
	if len(f) <= startstack {
		return 0
	}
	v, _ := strconv.ParseUint(string(f[startstack]), 10, 64)
	return v
}

// row implements space.
func (p *Process) row(pc uint64) *ehframe.Frame {
	if r, ok := p.rows[pc]; ok {
		return r
	}
	var found *ehframe.Frame
	if d, ok := p.entry(pc); ok {
		if row, err := d.FrameAt(pc); err == nil {
			found = &row
		}
	}
	if p.rows == nil || len(p.rows) >= mostRows {
		p.rows = map[uint64]*ehframe.Frame{}
	}
	p.rows[pc] = found
	return found
}

// entry returns the entry of unwind tables for an address. That of an image reaches to what has been added near it.
func (p *Process) entry(pc uint64) (ehframe.FDE, bool) {
	home := p.imageOf(pc)
	if home != nil {
		if d, ok := p.search(home, pc); ok {
			return d, true
		}
	}
	for _, im := range p.images {
		if im != home {
			if d, ok := p.search(im, pc); ok {
				return d, true
			}
		}
	}
	return ehframe.FDE{}, false
}

// search asks an image's table.
func (p *Process) search(im *image, pc uint64) (ehframe.FDE, bool) {
	const reach = 1 << 31 // of the table's distances
	if im.header == 0 {
		return p.searchFile(im, pc)
	}
	if pc+reach-im.header >= 2*reach {
		return ehframe.FDE{}, false
	}
	d, ok, err := ehframe.Search(p.mem.bytes, im.header, pc)
	return d, ok && err == nil
}

// searchFile looks for an entry in the file of an image: static programs of glibc have no search table, and register
// their entries themselves.
func (p *Process) searchFile(im *image, pc uint64) (ehframe.FDE, bool) {
	if pc < im.lo || pc >= im.hi {
		return ehframe.FDE{}, false
	}
	if !im.read {
		im.read = true
		if path := p.file(im); path != "" {
			im.mapped, im.entries = readEntries(path)
		}
	}
	if im.entries == nil {
		return ehframe.FDE{}, false
	}
	d, ok := im.entries.Find(pc - im.bias)
	d.PC += im.bias
	return d, ok
}

// readEntries reads the unwind tables of a file; nil if there are none.
func readEntries(path string) (*mapped.File, *ehframe.Index) {
	m, err := mapped.Open(path)
	if err != nil {
		return nil, nil
	}
	var x *ehframe.Index
	err = mapped.Guard(func() error {
		f, err := elfio.Parse(m.Data)
		if err != nil {
			return err
		}
		t, err := ehframe.Read(f)
		if err == nil {
			x = ehframe.NewIndex(t)
		}
		return err
	})
	if err != nil {
		return m, nil
	}
	return m, x
}

// imageOf returns the image that has an address, nil if none has.
func (p *Process) imageOf(addr uint64) *image {
	for _, im := range p.images {
		if addr >= im.lo && addr < im.hi {
			return im
		}
	}
	return nil
}

// inode is the number of a file's inode.
func inode(fi os.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
