//go:build linux && (amd64 || arm64)

package tracee

import (
	"cmp"
	"errors"

	"github.com/fentry-dev/fentry/arch"
)

// Where the dynamic loader opens files.
//
// Somebody has to come to know that the loader has opened a file: this process until the program begins, and the runtime
// in the program for what that loads later, when nobody traces it (stub/src/loader.c). So the loader's code is changed at
// the exec stop, before it runs.
//
// glibc's opens files by a handful of functions, each with a system call. That becomes a branch to a stub, in a page of
// its own below the loader, as the runtime is farther away than a branch reaches. The stub makes the call. If that has
// succeeded it goes on to where its slot says: to a breakpoint in the stub itself; when the program begins, to the
// runtime; or, if there is nothing to be done, back.
//
// musl's loader is also the C library, and opens libraries by its function open, as the program does. There the calls of
// it are changed, of those that open something to read it, and close it at an execve, as the loader does. They call a
// stub that calls open and goes on in the same way. Until the program begins these stubs do nothing, and the process
// stops at all system calls. Other loaders are left alone.

// stubLayout says how large each of the stubs is, and where in it is what: where it goes on to if nothing is to be done, a
// breakpoint in front of that, and the slot with the address that it goes on to.
type stubLayout struct{ size, back, trap, slot uint64 }

// hook changes the loader's code so that it comes to a breakpoint when it has opened a file, or at least, when the program
// has begun, to the runtime.
func (l *loader) hook() error {
	sites, err := l.find(func(b []byte, _ uint64) []int { return findOpens(b) })
	if err != nil {
		return err
	}
	if len(sites) > 0 {
		l.stub = openLayout
		err := l.change(sites, func(at, site uint64) ([]byte, arch.Edit, error) { return openStub(at, site, l.ways) })
		l.armed = err == nil
		return err
	}
	open, err := l.symbol("open")
	if err != nil {
		return err
	}
	if open != 0 {
		sites, err = l.find(func(b []byte, at uint64) []int { return findCalls(b, open-at) })
	}
	if err != nil || len(sites) == 0 {
		return cmp.Or(err, errors.New("its dynamic loader opens files in an unknown way"))
	}
	l.stub = callLayout
	return l.change(sites, func(at, site uint64) ([]byte, arch.Edit, error) { return callStub(at, site, open) })
}

// find returns the addresses of what is found in the loader's code.
func (l *loader) find(in func(code []byte, at uint64) []int) (sites []uint64, err error) {
	for _, s := range l.code {
		b := make([]byte, s.size)
		if err := l.t.ReadAt(b, s.addr); err != nil {
			return nil, err
		}
		for _, at := range in(b, s.addr) {
			sites = append(sites, s.addr+uint64(at))
		}
	}
	return sites, nil
}

// change puts a stub for each site in memory close to the loader, and has the sites lead there.
func (l *loader) change(sites []uint64, stub func(at, site uint64) ([]byte, arch.Edit, error)) error {
	size := uint64(len(sites)) * l.stub.size
	page, err := l.page(pageUp(size + uint64(len(exchangeCode)) + exchangePath))
	if err != nil {
		return err
	}
	var stubs []byte
	var edits []arch.Edit
	for i, site := range sites {
		code, e, err := stub(page+uint64(i)*l.stub.size, site)
		if err != nil {
			return err
		}
		stubs, edits = append(stubs, code...), append(edits, e)
	}
	defer func() {
		if l.stubs.size == 0 {
			l.hooked = nil
		}
	}()
	for _, e := range edits {
		l.hooked = append(l.hooked, span{e.Addr, uint64(len(e.Old))})
	}
	if err := l.t.WriteAt(append(stubs, exchangeCode...), page); err != nil {
		return err
	}
	if err := arch.Compare(l.t, PageSize, arch.All(edits)); err != nil {
		return err
	}
	if err := arch.Write(l.t, PageSize, edits); err != nil {
		return err
	}
	l.stubs = span{page, size}
	if len(exchangeCode) > 0 {
		l.exchange = page + size
	}
	return nil
}

// aim has the stubs of a process, which are where this one's are, go on to a routine; 0: back to the loader.
func (l *loader) aim(t *Process, routine uint64) error {
	for at := l.stubs.addr; at < l.stubs.addr+l.stubs.size; at += l.stub.size {
		to := routine
		if to == 0 {
			to = at + l.stub.back
		}
		if err := t.WriteAt(le.AppendUint64(nil, to), at+l.stub.slot); err != nil {
			return err
		}
	}
	return nil
}

// opened tells whether the process is at the breakpoint of a stub: it has opened a file then, by the name at path.
func (l *loader) opened(regs *registers) (fd, path uint64, ok bool) {
	fd, path = regs.openedFile()
	at := regs.pc() - l.stubs.addr
	if !l.armed || at >= l.stubs.size {
		return 0, 0, false
	}
	return fd, path, regs.stoppedAt(l.stubs.addr + at/l.stub.size*l.stub.size + l.stub.trap)
}
