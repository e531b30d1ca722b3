//go:build linux

package launch

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/mapped"
)

var le = binary.LittleEndian

// inherited is what a Go program no longer is by the time it runs: how signals
// were disposed of, and which were blocked, when it was started.
type Inherited struct {
	Ignored uint64 // bit n-1: signal n was ignored
	Blocked uint64 // bit n-1: signal n was blocked
}

// Ignores tells whether a signal was ignored.
func (in Inherited) Ignores(sig syscall.Signal) bool { return in.Ignored&bit(sig) != 0 }

func bit(sig syscall.Signal) uint64 { return 1 << (uint(sig) - 1) }

const numSignals = 64

// ReadInherited finds out what was inherited. The runtime keeps the dispositions
// it replaced and the mask it started with, but for itself; they are found
// through the symbol table of the executable. Where that has been stripped, what
// the runtime leaves alone must do: SIGHUP and SIGINT when they were ignored
// (nohup, background jobs), and the mask but for signals it must be able to get.
func ReadInherited() Inherited {
	var in Inherited
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			in.Ignored |= bit(s)
		}
	}
	in.Blocked = threadMask()
	if r, ok := runtimeState(); ok {
		// A sane copy of the state agrees with what is known otherwise.
		known := bit(syscall.SIGHUP) | bit(syscall.SIGINT)
		if r.Ignored&known&^in.Ignored == 0 && r.Blocked&in.Blocked == in.Blocked {
			in.Ignored |= r.Ignored
			in.Blocked = r.Blocked
		}
	}
	return in
}

// Warm finds out ahead of time where this process has its runtime's state.
func Warm() { stateAt() }

// stateAt is where runtime.fwdSig and runtime.initSigmask are, with their sizes; nil: that is not known.
var stateAt = sync.OnceValue(func() []elf.Symbol {
	exe, err := mapped.Open("/proc/self/exe")
	if err != nil {
		return nil
	}
	defer exe.Close()
	f, err := elf.NewFile(bytes.NewReader(exe.Data))
	if err != nil {
		return nil
	}
	at := findSymbols(f, exe.Data, "runtime.fwdSig", "runtime.initSigmask")
	entry, ok := ownEntry()
	if !ok {
		return nil
	}
	for i := range at {
		at[i].Value += entry - f.Entry
	}
	return at
})

// runtimeState reads runtime.fwdSig and runtime.initSigmask.
func runtimeState() (in Inherited, ok bool) {
	at := stateAt()
	if at == nil {
		return in, false
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return in, false
	}
	defer mem.Close()
	word := unsafe.Sizeof(uintptr(0))
	fwd := make([]byte, (numSignals+1)*word)
	mask := make([]byte, 8)
	if at[0].Size != uint64(len(fwd)) || at[1].Size != uint64(len(mask)) {
		return in, false
	}
	if _, err := mem.ReadAt(fwd, int64(at[0].Value)); err != nil {
		return in, false
	}
	if _, err := mem.ReadAt(mask, int64(at[1].Value)); err != nil {
		return in, false
	}
	const sigIgn = 1
	for s := 1; s <= numSignals; s++ {
		v := le.Uint32(fwd[s*int(word):])
		switch {
		case v == sigIgn:
			in.Ignored |= bit(syscall.Signal(s))
		case v != 0:
			return in, false // handlers do not survive execve
		}
	}
	in.Blocked = le.Uint64(mask)
	return in, in.Blocked&(bit(syscall.SIGKILL)|bit(syscall.SIGSTOP)) == 0
}

// findSymbols looks names up in .symtab without making a string of every symbol,
// and without copying the tables: they are megabytes, and every recording begins
// with this. It returns nil if a name is missing.
func findSymbols(f *elf.File, file []byte, names ...string) []elf.Symbol {
	tab := f.SectionByType(elf.SHT_SYMTAB)
	if tab == nil || tab.Entsize != elf.Sym64Size || int(tab.Link) >= len(f.Sections) {
		return nil
	}
	str, syms := contents(f.Sections[tab.Link], file), contents(tab, file)
	found := make([]elf.Symbol, len(names))
	offs := make([]uint32, len(names))
	for i, n := range names {
		at := bytes.Index(str, []byte("\x00"+n+"\x00"))
		if at < 0 {
			return nil
		}
		offs[i] = uint32(at + 1)
	}
	left := len(names)
	for ; len(syms) >= elf.Sym64Size && left > 0; syms = syms[elf.Sym64Size:] {
		if i := slices.Index(offs, le.Uint32(syms)); i >= 0 && found[i].Value == 0 {
			found[i].Value, found[i].Size = le.Uint64(syms[8:]), le.Uint64(syms[16:])
			left--
		}
	}
	if left > 0 {
		return nil
	}
	return found
}

// contents is what a section has in its file; nil if it is not as it is there.
func contents(s *elf.Section, file []byte) []byte {
	size := uint64(len(file))
	if s.Type == elf.SHT_NOBITS || s.Flags&elf.SHF_COMPRESSED != 0 || s.Offset > size || s.FileSize > size-s.Offset {
		return nil
	}
	return file[s.Offset:][:s.FileSize]
}

const auxEntryPoint = 9 // AT_ENTRY of the auxiliary vector (elf.h)

// ownEntry is where this process's entry point is.
func ownEntry() (uint64, bool) {
	aux, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		return 0, false
	}
	for ; len(aux) >= 16; aux = aux[16:] {
		if le.Uint64(aux) == auxEntryPoint {
			return le.Uint64(aux[8:]), true
		}
	}
	return 0, false
}

// threadMask is the calling thread's signal mask.
func threadMask() uint64 {
	var set uint64
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, 0, uintptr(unsafe.Pointer(&set)), 8, 0, 0)
	return set
}

// setThreadMask sets it. The goroutine must be locked to its thread.
func setThreadMask(set uint64) {
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&set)), 0, 8, 0, 0)
}

// Ignore makes this process ignore what it inherited as ignored, so that what it
// starts inherits that too. SIGCHLD is left to the caller: ignored for longer
// than a moment it would make children vanish unwaited for.
func (in Inherited) Ignore() {
	for s := syscall.Signal(1); s <= numSignals; s++ {
		if in.Ignored&bit(s) != 0 && s != syscall.SIGCHLD && !signal.Ignored(s) {
			signal.Ignore(s)
		}
	}
}
