package tracee

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/patch"
)

// What unwinders know of what was added.
//
// An unwinder has to know which table has an entry for an address. Since 2.35 glibc tells that by _dl_find_object, from what its
// loader has loaded, which is nothing of a tracer's. So an unwinder that meets a thunk, a moved instruction or the runtime would end
// there: a handler has interrupted a thread in it, or a function that has ended by a jump to another image returns to it. The function
// is in libc, but the loader knows, and so all that is in libc is
//
//	48 8b 05 xx xx xx xx  mov _rtld_global_ro@GOTPCREL(%rip), %rax
//	ff a0 xx xx xx xx     jmp *_dl_find_object(%rax)
//
// perhaps behind an endbr64. The word that it jumps by becomes the runtime's routine, which asks glibc's first.

// findFunction is the function's name.
const findFunction = "_dl_find_object"

var errNoFinder = errors.New("its C library does not tell unwinders what they find where")

// A findHook is such a word, what is in it and what is to be; at 0: there is none.
type findHook struct{ at, was, to uint64 }

// CanLeadUnwinders returns an error if nothing leads unwinders of a process to what is added to it.
func CanLeadUnwinders(pid int) error {
	ts, err := openThreads(pid)
	if err != nil {
		return err
	}
	defer ts.close()
	_, err = ts.findHook()
	return err
}

// findHook is that of a process, which has not been changed yet: the function can be one that is traced.
func (ts *threads) findHook() (findHook, error) {
	ms, err := ts.maps()
	if err != nil {
		return findHook{}, err
	}
	err = errNoFinder
	for i := range ms {
		if m := &ms[i]; m.isCode() && isLibc(m.path) {
			h, err := ts.findHookIn(ms, m)
			if err == nil {
				return h, nil
			}
		}
	}
	return findHook{}, err
}

// isCode tells mappings of files that are executed.
func (m *mapping) isCode() bool { return m.isFileCode() && m.perms[2] == 'x' }

// findHookIn is that of a C library whose code is mapped.
func (ts *threads) findHookIn(ms []mapping, m *mapping) (h findHook, err error) {
	at, err := ts.findFunction(m)
	if err != nil {
		return h, err
	}
	const load, jump = 7, 6
	code := make([]byte, len(endbr64)+load+jump)
	if err := ts.memory().ReadAt(code, at); err != nil {
		return h, err
	}
	if bytes.HasPrefix(code, endbr64) {
		code, at = code[len(endbr64):], at+uint64(len(endbr64))
	}
	if !bytes.HasPrefix(code, []byte{0x48, 0x8b, 0x05}) || !bytes.HasPrefix(code[load:], []byte{0xff, 0xa0}) {
		return h, fmt.Errorf("%s: %s is code of an unknown kind", m.path, findFunction)
	}
	distance := func(b []byte) uint64 { return uint64(int64(int32(le.Uint32(b)))) }
	globals, err := ts.word(at + load + distance(code[3:]))
	if err != nil {
		return h, err
	}
	h.at = globals + distance(code[load+2:])
	if h.was, err = ts.word(h.at); err != nil {
		return h, err
	}
	return h, h.check(ms)
}

// word is one of the process's memory.
func (ts *threads) word(at uint64) (uint64, error) {
	b := make([]byte, 8)
	err := ts.memory().ReadAt(b, at)
	return le.Uint64(b), err
}

// check returns an error if that is no word of a file that can only be read, with the address of code of the same file in it.
func (h *findHook) check(ms []mapping) error {
	f := finder{ms: ms}
	data, code := f.at(h.at), f.at(h.was)
	if h.at%8 != 0 || data == nil || !data.isFileCode() || code == nil || !code.isCode() || data.file() != code.file() {
		return fmt.Errorf("at %#x is no address of a function", h.at)
	}
	return nil
}

// findFunction returns the address of the function in a C library whose code is mapped.
func (ts *threads) findFunction(m *mapping) (at uint64, err error) {
	file := ts.fileOf(m)
	begin, err := m.offset()
	if file == nil || err != nil {
		return 0, fmt.Errorf("%s cannot be read", m.path)
	}
	defer file.Close()
	data, err := mapped.MapFD(int(file.Fd()), m.path)
	if err != nil {
		return 0, err
	}
	defer data.Close()
	err = mapped.Guard(func() error {
		f, err := elfio.Parse(data.Data)
		if err != nil {
			return err
		}
		syms, err := f.DynamicSymbols()
		if err != nil {
			return err
		}
		for i := range syms {
			if s := &syms[i]; s.Name == findFunction && s.Section != 0 {
				off, ok := f.Offset(s.Value)
				if !ok || off < uint64(begin) || off-uint64(begin) >= m.hi-m.lo {
					break
				}
				at = m.lo + off - uint64(begin)
				return nil
			}
		}
		return errNoFinder
	})
	return at, err
}

// leadUnwinders has unwinders know what was added to a process, whose home is an image.
func (a *Attachment) leadUnwinders(ts *threads, home *image) error {
	h, mem := &a.hooks.finder, ts.memory()
	if h.at == 0 {
		return nil
	}
	h.to = home.bias + home.m.Running.Find
	var noted []byte
	for _, w := range h.words() {
		noted = le.AppendUint64(noted, *w)
	}
	err := mem.WriteAt(noted, home.journal+8*jFinder)
	if err == nil {
		err = mem.WriteAt(le.AppendUint64(nil, h.was), home.bias+home.m.Running.Finder)
	}
	if err == nil {
		a.hooks.edits, err = a.inStops(ts, []arch.Edit{h.edit()}, nil)
	}
	return err
}

// edit leads the word to the routine.
func (h *findHook) edit() arch.Edit {
	return arch.Edit{Addr: h.at, Old: le.AppendUint64(nil, h.was), New: le.AppendUint64(nil, h.to), Reason: patch.ReasonUnwind}
}

// words are its numbers in a journal.
func (h *findHook) words() []*uint64 { return []*uint64{&h.at, &h.was, &h.to} }

// is tells whether an edit is of that word.
func (h *findHook) is(e *arch.Edit) bool { return h.at != 0 && e.Addr == h.at }

// findSize is more than the routine is long.
const findSize = 512

// in tells whether an address is in the routine.
func (h *findHook) in(v uint64) bool { return h.at != 0 && v-h.to < findSize }
