//go:build linux

package tracee

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// Where programs execute others, or filter their system calls.
//
// All of it goes by few instructions of the C library, those of execve and execveat, of prctl, seccomp
// and syscall, or of the program itself if that is static. When they are loaded, a process that is traced asks to have them changed, so that it comes to its runtime
// first. Nothing stops it for that: it waits for the answer, and no other thread runs, or it is left alone. Code is
// written through /proc/PID/mem, as at an exec stop.

// ExecHooks changes processes. What was found in a file is remembered.
type ExecHooks struct {
	mu    sync.Mutex
	found map[string][]execSite

	ahead sync.Map // what is in files that were looked at ahead of time: *aheadSites by a mapping's key
}

// aheadSites are the sites of a file's code.
type aheadSites struct {
	once  sync.Once
	size  uint64 // of the mapping
	sites []execSite
}

// Ahead looks for them in the C library beside a dynamic loader, before a process has it.
func (h *ExecHooks) Ahead(loader string) {
	file, err := filepath.EvalSymlinks(loader)
	if err != nil {
		return
	}
	if !isLibc(file) { // musl's loader is the library
		file = filepath.Join(filepath.Dir(file), "libc.so.6")
	}
	f, err := mapped.Open(file)
	if err != nil {
		return
	}
	defer f.Close()
	_ = mapped.Guard(func() error { return h.lookAhead(f) })
}

// lookAhead looks for them in the file of a C library.
func (h *ExecHooks) lookAhead(f *mapped.File) error {
	e, err := elfio.Parse(f.Data)
	if err != nil {
		return err
	}
	for _, p := range e.Progs {
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 || p.Off > uint64(len(f.Data)) {
			continue
		}
		from := p.Off &^ (PageSize - 1)
		m := mapping{hi: pageUp(p.Off - from + p.Filesz), key: mappingKey(f.Info, from)}
		if m.hi > maxCode {
			continue
		}
		code := m.contents(f.Data[from:])
		a := &aheadSites{size: m.hi}
		a.once.Do(func() {
			if _, taken := h.ahead.LoadOrStore(m.key, a); taken {
				return
			}
			elsewhere := false
			sites := findExecs(code, func([]byte, int64) error {
				elsewhere = true
				return errors.New("not looked at")
			})
			if !elsewhere { // else it takes the process's memory to tell
				a.sites = sites
			}
		})
	}
	return nil
}

// lookedAhead returns what was found ahead of time; nil: nothing.
func (h *ExecHooks) lookedAhead(m *mapping) []execSite {
	v, ok := h.ahead.Load(m.key)
	if !ok {
		return nil
	}
	a := v.(*aheadSites)
	a.once.Do(func() {}) // it is being looked at
	if a.size != m.hi-m.lo {
		return nil
	}
	return a.sites
}

// execSite is where a system call is made of which the runtime is to know before: on x86-64 the instruction in front of it, which
// loads the call's number or, where callers say that, the last argument, on arm64 the call.
type execSite struct {
	at uint64 // its address, or how far it is behind the beginning of a mapping
	nr uint32 // the call's number, or anyNumber
}

// anyNumber: those who call the function say which system call it makes (syscall(3)).
const anyNumber = ^uint32(0)

// mapping is a line of /proc/PID/maps.
type mapping struct {
	lo, hi uint64
	perms  string
	key    string // of the file: device and inode, and where in it the mapping begins
	path   string
}

// isOf tells whether a mapping is of a file.
func (m *mapping) isOf(st os.FileInfo) bool {
	return m.file() == fileOf(st)
}

// mappingKey is the key of a mapping of a file that begins at an offset.
func mappingKey(st os.FileInfo, offset uint64) string {
	return fmt.Sprintf("%08x %s", offset, fileOf(st))
}

// fileOf is a file as a line of maps names it: device and inode; "": that is not known.
func fileOf(st os.FileInfo) string {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%02x:%02x %d", unix.Major(s.Dev), unix.Minor(s.Dev), s.Ino)
}

// contents is what of a file, from the mapping's beginning on, is in it.
func (m *mapping) contents(b []byte) []byte { return b[:min(uint64(len(b)), m.hi-m.lo)] }

// file is the file of a mapping: device and inode.
func (m *mapping) file() string {
	_, file, _ := strings.Cut(m.key, " ")
	return file
}

// protection is that of a mapping which is not written to.
func (m *mapping) protection() int {
	if m.perms[2] == 'x' {
		return unix.PROT_READ | unix.PROT_EXEC
	}
	return unix.PROT_READ
}

// offset is where in its file a mapping begins.
func (m *mapping) offset() (int64, error) {
	offset, _, _ := strings.Cut(m.key, " ")
	return strconv.ParseInt(offset, 16, 64)
}

// mostMaps bounds how much is read of /proc/PID/maps.
const mostMaps = 4 << 20

// readMaps returns the mappings of a process or thread whose directory in /proc is given.
func readMaps(dir string) ([]mapping, error) {
	b, err := readSome(dir + "/maps")
	return parseMaps(b), err
}

// parseMaps parses the contents of a maps file (proc_pid_maps(5)).
func parseMaps(b []byte) []mapping {
	var ms []mapping
	for line := range bytes.Lines(b) {
		f := strings.SplitN(strings.TrimSuffix(string(line), "\n"), " ", 6)
		if len(f) < 5 {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		lo, errLo := strconv.ParseUint(from, 16, 64)
		hi, errHi := strconv.ParseUint(to, 16, 64)
		if errLo != nil || errHi != nil || lo >= hi {
			continue
		}
		m := mapping{lo: lo, hi: hi, perms: f[1], key: strings.Join(f[2:5], " ")}
		if len(f) == 6 {
			m.path = strings.TrimLeft(f[5], " ")
		}
		ms = append(ms, m)
	}
	return ms
}

// isLibc tells whether a file is a C library, by its name: glibc's, musl's or bionic's, or a copy in memory of one.
func isLibc(file string) bool {
	base := strings.TrimPrefix(path.Base(file), "memfd:")
	for _, prefix := range []string{"libc.so", "libc-2.", "ld-musl-", "libc.musl-"} {
		if strings.HasPrefix(base, prefix) {
			return true
		}
	}
	return false
}

// codeOf returns the mappings of the code by which a process executes programs. That of a static program, which has the entry
// point, can have been moved to where the tracer is. The file can be a copy of the program (code.go).
func codeOf(ms []mapping, entry uint64) []mapping {
	exe := ""
	for i := range ms {
		if ms[i].lo <= entry && entry < ms[i].hi {
			exe = ms[i].path
		}
	}
	var libc, own []mapping
	for _, m := range ms {
		switch {
		case m.perms != "r-xp":
		case isLibc(m.path):
			libc = append(libc, m)
		case m.path == exe || m.path == "":
			own = append(own, m)
		}
	}
	if libc == nil {
		return own
	}
	return libc
}

// process is one that is looked at and changed without being traced.
type process struct {
	Process
	maps []mapping
	code []mapping
}

func openProcess(pid int) (*process, error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	if len(tasks) != 1 {
		return nil, errors.New("it has several threads already")
	}
	maps, err := readMaps(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return nil, err
	}
	aux, err := readSome(fmt.Sprintf("/proc/%d/auxv", pid)) // the only thread has it
	if err != nil {
		return nil, err
	}
	p := &process{Process: Process{pid: pid}, maps: maps}
	p.code = codeOf(p.maps, auxValue(aux, atEntry))
	p.mem, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	return p, err
}

// sites returns where the process executes programs.
func (h *ExecHooks) sites(p *process) (sites []execSite, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.found == nil {
		h.found = make(map[string][]execSite)
	}
	for _, m := range p.code {
		if m.hi-m.lo > maxCode {
			continue
		}
		found, ok := h.found[m.key]
		if !ok {
			found = h.findExecs(p, &m)
			if m.path != "" {
				h.found[m.key] = found
			}
		}
		for _, s := range found {
			if p.isCode(m.lo + s.at) {
				sites = append(sites, execSite{m.lo + s.at, s.nr})
			}
		}
	}
	slices.SortFunc(sites, func(a, b execSite) int { return cmp.Compare(a.at, b.at) })
	// A static program need not execute any.
	executes := func(s execSite) bool { return s.nr == unix.SYS_EXECVE }
	if len(sites) == 0 || isLibc(p.code[0].path) && !slices.ContainsFunc(sites, executes) {
		return nil, errors.New("where it executes programs is not known")
	}
	return sites, nil
}

// findExecs finds them in a mapping.
func (h *ExecHooks) findExecs(p *process, m *mapping) []execSite {
	near := func(b []byte, far int64) error { return p.ReadAt(b, m.lo+uint64(far)) }
	if found, ok := h.findInFile(p, m, near); ok {
		return found
	}
	b := make([]byte, m.hi-m.lo)
	if n, err := p.mem.ReadAt(b, int64(m.lo)); err != nil {
		b = b[:n] // the file is shorter than the mapping
	}
	return findExecs(b, near)
}

// execLen is how many bytes tell where a program is executed.
const execLen = 16

// findInFile finds them in the file of a mapping, which takes a tenth of the time: the process has not read these pages yet. ok
// is false if there is none, or the memory is not as the file where something was found: calls that are recorded lead elsewhere.
func (h *ExecHooks) findInFile(p *process, m *mapping, near func([]byte, int64) error) (found []execSite, ok bool) {
	f, err := mapped.Open(fmt.Sprintf("/proc/%d/root%s", p.pid, m.path))
	if err != nil {
		return nil, false
	}
	defer f.Close()
	from, err := m.offset()
	if err != nil || !m.isOf(f.Info) || from < 0 || from > int64(len(f.Data)) {
		return nil, false
	}
	err = mapped.Guard(func() error {
		b := m.contents(f.Data[from:])
		if found = h.lookedAhead(m); found == nil {
			found = findExecs(b, near)
		}
		for _, s := range found {
			if s.at >= uint64(len(b)) {
				return errors.New("behind a jump") // a call that is recorded, in a copy of the file
			}
			var have [execLen]byte
			want := b[s.at:][:min(execLen, uint64(len(b))-s.at)]
			if err := near(have[:len(want)], int64(s.at)); err != nil || !bytes.Equal(have[:len(want)], want) {
				return errors.New("changed")
			}
		}
		return nil
	})
	return found, err == nil && len(found) > 0
}

// Place returns where a process is to map the page that Follow needs.
func (h *ExecHooks) Place(pid int) (uint64, error) {
	p, err := openProcess(pid)
	if err != nil {
		return 0, err
	}
	defer p.mem.Close()
	sites, err := h.sites(p)
	if err != nil {
		return 0, err
	}
	at, ok := gap(p.maps, sites[0].at)
	if !ok {
		return 0, errors.New("no memory close to where it executes programs")
	}
	return at, nil
}

// gap returns the address of a page that is not mapped, close to an address and below it, with some room on both sides:
// the heap and stacks of threads grow.
func gap(ms []mapping, addr uint64) (uint64, bool) {
	const reach, room = execReach, 1 << 20
	hi := addr
	for i := len(ms) - 1; i >= 0; i-- {
		m := ms[i]
		if m.lo >= addr || m.hi > hi {
			hi = min(hi, m.lo)
			continue
		}
		if hi-m.hi >= 2*room+PageSize && addr-(hi-room-PageSize) < reach {
			return (hi - room - PageSize) &^ (PageSize - 1), true
		}
		hi = m.lo
	}
	const lowest = 0x20000 // above vm.mmap_min_addr
	if hi >= lowest+room+PageSize && addr-(hi-room-PageSize) < reach {
		return (hi - room - PageSize) &^ (PageSize - 1), true
	}
	return 0, false
}

// ErrFar: a page is too far from where a process executes programs.
var ErrFar = errors.New("no jump reaches its page from where it executes programs")

// Follow has a process come to its runtime before it executes a program: at addr there are, in its memory, the address of
// the routine, and that of the page that it has mapped. The error is ErrFar if another page is needed, as Place says.
func (h *ExecHooks) Follow(pid int, addr uint64) error {
	p, err := openProcess(pid)
	if err != nil {
		return err
	}
	defer p.mem.Close()
	var b [16]byte
	if err := p.ReadAt(b[:], addr); err != nil {
		return err
	}
	routine, page := le.Uint64(b[:]), le.Uint64(b[8:])
	if !p.isPage(page) {
		return fmt.Errorf("at %#x there is no page of its own", page)
	}
	sites, err := h.sites(p)
	if err != nil {
		return err
	}
	stubs, edits := execStubs(page, routine, sites)
	if len(edits) == 0 {
		return ErrFar
	}
	if err := p.WriteAt(stubs, page); err != nil {
		return err
	}
	if err := arch.Compare(p, PageSize, arch.All(edits)); err != nil {
		return err
	}
	return arch.Write(p, PageSize, edits)
}

// isCode tells whether an address is one of the code by which the process executes programs. Calls that are recorded are in
// code that has been added to it.
func (p *process) isCode(addr uint64) bool {
	return slices.ContainsFunc(p.code, func(m mapping) bool { return m.lo <= addr && addr < m.hi })
}

// isPage tells whether an address is that of a page of code which is nothing else's.
func (p *process) isPage(addr uint64) bool {
	for _, m := range p.maps {
		if m.lo == addr {
			return m.hi-m.lo == PageSize && m.perms == "r-xp" && m.path == ""
		}
	}
	return false
}

// ExecCall is what a thread is about to execute.
type ExecCall struct {
	Path  string
	Dir   int // descriptor that Path is below; atCwd: the working directory
	Flags uint32
	TID   int // here
}

const atCwd = -100 // AT_FDCWD

// ReadExecCall reads what a process says it is about to execute, at an address in its memory.
func ReadExecCall(pid int, addr uint64) (c ExecCall, err error) {
	p := Process{pid: pid}
	if p.mem, err = os.Open(fmt.Sprintf("/proc/%d/mem", pid)); err != nil {
		return c, err
	}
	defer p.mem.Close()
	var b [20]byte // struct exec_call of stub/src/exec.c
	if err := p.ReadAt(b[:], addr); err != nil {
		return c, err
	}
	c = ExecCall{p.text(le.Uint64(b[:])), int(int32(le.Uint32(b[8:]))), le.Uint32(b[12:]), int(le.Uint32(b[16:]))}
	c.TID, err = procfs.Thread(pid, c.TID)
	return c, err
}

// File is a path here that leads to what is executed.
func (c *ExecCall) File(pid int) string {
	dir := fmt.Sprintf("/proc/%d/cwd", pid)
	if c.Dir != atCwd {
		dir = fmt.Sprintf("/proc/%d/fd/%d", pid, c.Dir)
	}
	switch {
	case strings.HasPrefix(c.Path, "/"):
		return fmt.Sprintf("/proc/%d/root%s", pid, c.Path)
	case c.Path == "":
		return dir
	}
	return dir + "/" + c.Path
}
