//go:build linux

package tracefs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"syscall"
)

// What is kept while a file is open.

// handle is an open file. Its methods are called one at a time.
type handle interface {
	// read returns what there is from an offset on; nothing at the end. If it may not wait, the error is EAGAIN.
	read(ctx context.Context, off int64, size int, wait bool) ([]byte, error)
	// write takes what one write has.
	write(b []byte, by writer) error
	// flush is called when a descriptor is closed, which is not always the last one. An error is close's.
	flush() error
	// close is called at the end.
	close()
}

// Access modes and flags of open(2), as FUSE passes them.
func readable(flags uint32) bool  { return flags&syscall.O_ACCMODE != syscall.O_WRONLY }
func writable(flags uint32) bool  { return flags&syscall.O_ACCMODE != syscall.O_RDONLY }
func truncates(flags uint32) bool { return flags&syscall.O_TRUNC != 0 && writable(flags) }

// textHandle is an open file with a text: it is made when it is read from the beginning.
type textHandle struct {
	in    *instance
	make  func() ([]byte, error)
	take  func(s string, by writer) error
	text  []byte
	ready bool
}

func (h *textHandle) read(_ context.Context, off int64, size int, _ bool) ([]byte, error) {
	if h.make == nil {
		return nil, syscall.EINVAL
	}
	if !h.ready || off == 0 {
		h.in.fs.mu.Lock()
		text, err := h.make()
		h.in.fs.mu.Unlock()
		if err != nil {
			return nil, err
		}
		h.text, h.ready = text, true
	}
	return part(h.text, off, size), nil
}

// part is a part of a text.
func part(text []byte, off int64, size int) []byte {
	if off < 0 || off >= int64(len(text)) {
		return nil
	}
	return text[off:min(int64(len(text)), off+int64(size))]
}

func (h *textHandle) write(b []byte, by writer) error {
	if h.take == nil {
		return syscall.EINVAL
	}
	h.in.fs.mu.Lock()
	defer h.in.fs.mu.Unlock()
	return h.take(string(b), by)
}

func (h *textHandle) flush() error { return nil }
func (h *textHandle) close()       {}

// openTrace opens trace, of which nothing is taken away; what is written to it does not matter.
func openTrace(in *instance, cpu int, _ uint32) handle {
	return &textHandle{
		in: in,
		make: func() ([]byte, error) {
			t, err := in.fs.open()
			if err != nil {
				return nil, err
			}
			defer t.Close()
			text, _, err := in.text(t, cpu, 0, false)
			return text, err
		},
		take: func(string, writer) error { return nil },
	}
}

// openSize opens buffer_size_kb.
func openSize(in *instance, cpu int, _ uint32) handle {
	return &textHandle{
		in:   in,
		make: func() ([]byte, error) { return append(strconv.AppendInt(nil, in.sizeOf(cpu), 10), '\n'), nil },
		take: func(s string, _ writer) error { return in.resize(cpu, s) },
	}
}

// which says which filter a file is.
type which int

const (
	filterFunctions which = iota
	filterNotrace
	filterGraph
	filterNoGraph
)

// of is the set in settings.
func (w which) of(s *settings) **set {
	return [...]**set{&s.functions, &s.notrace, &s.graph, &s.noGraph}[w]
}

// none is what an empty set's file says.
func (w which) none() string {
	return [...]string{"all functions enabled", "no functions disabled", "all functions enabled", "no functions disabled"}[w]
}

// filter is a filter's file, open. A set is changed beside the one that holds, and put in its place when the file is
// closed, so half of what somebody writes is never in force. Shells close a copy of the descriptor before they write: a
// file that was only truncated changes the set when the last descriptor is closed.
type filter struct {
	textHandle
	which which
	words words
	next  *set // nil: the file is read only
	dirty bool // written since it was put in place
	empty bool // truncated, and not written
}

func openFilter(w which) func(*instance, int, uint32) handle {
	return func(in *instance, _ int, flags uint32) handle {
		f := &filter{which: w}
		f.in = in
		f.make = func() ([]byte, error) {
			if err := errors.Join(in.fs.refresh(), in.fs.scan()); err != nil { // what is found may use up counts
				return nil, err
			}
			b := in.fs.functions.list(*w.of(in.epochs.now()), w.none())
			if w == filterFunctions {
				b = append(b, in.listProbes()...)
			}
			return b, nil
		}
		if writable(flags) {
			in.fs.mu.Lock()
			defer in.fs.mu.Unlock()
			if f.next = (*w.of(in.epochs.now())).clone(); truncates(flags) {
				f.next, f.empty = &set{}, true
			}
		}
		return f
	}
}

func (f *filter) write(b []byte, _ writer) error {
	fs := f.in.fs
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.dirty, f.empty = true, false
	return f.words.write(b, f.word)
}

// word is one that was written.
func (f *filter) word(word string) error {
	if f.which == filterFunctions {
		rest, command, ok := cutCommand(word)
		if ok && command != "mod" {
			return f.in.command(rest)
		}
	}
	return f.in.fs.functions.apply(f.next, word)
}

// cutCommand returns a word's command.
func cutCommand(word string) (all, command string, ok bool) {
	i := slices.Index([]byte(word), ':')
	if i < 0 {
		return word, "", false
	}
	rest := word[i+1:]
	if j := slices.Index([]byte(rest), ':'); j >= 0 {
		rest = rest[:j]
	}
	return word, rest, true
}

func (f *filter) flush() error {
	if !f.dirty {
		return nil
	}
	f.in.fs.mu.Lock()
	defer f.in.fs.mu.Unlock()
	_ = f.words.end(f.word) // nobody would get the error, as in the kernel
	f.dirty = false
	return f.install()
}

// install puts the set in place.
func (f *filter) install() error {
	next := f.next.clone()
	return f.in.change(func(s *settings) { *f.which.of(s) = next })
}

func (f *filter) close() {
	if f.empty {
		f.in.fs.mu.Lock()
		defer f.in.fs.mu.Unlock()
		_ = f.install()
	}
}

// tidHandle is a file of thread ids, open. As for a filter, what is written counts when the file is closed.
type tidHandle struct {
	textHandle
	words words
	of    func(*settings) *map[int]bool
	next  map[int]bool
	dirty bool  // written since it was put in place
	empty bool  // truncated, and not written
	added []int // by the last write
}

func openTIDs(of func(*settings) *map[int]bool) func(*instance, int, uint32) handle {
	return func(in *instance, _ int, flags uint32) handle {
		h := &tidHandle{of: of, next: make(map[int]bool), empty: truncates(flags)}
		h.in = in
		h.make = func() (b []byte, err error) {
			tids := *of(in.epochs.now())
			if tids == nil {
				return []byte("no pid\n"), nil
			}
			for _, tid := range slices.Sorted(maps.Keys(tids)) {
				b = append(strconv.AppendInt(b, int64(tid), 10), '\n')
			}
			return b, nil
		}
		if writable(flags) && !h.empty {
			in.fs.mu.Lock()
			defer in.fs.mu.Unlock()
			maps.Copy(h.next, *of(in.epochs.now()))
		}
		return h
	}
}

func (h *tidHandle) write(b []byte, _ writer) error {
	h.dirty, h.empty = true, false
	h.added = h.added[:0]
	err := h.words.write(b, h.word)
	if err != nil { // then nothing of it counts
		for _, tid := range h.added {
			delete(h.next, tid)
		}
	}
	return err
}

// word takes a thread's id, in any base, as the kernel's trace_pid_write does.
func (h *tidHandle) word(word string) error {
	const most = 1 << 30 // of pid_list.c
	n, err := parseUint(word, 0)
	tid := int(uint32(n)) // the kernel has pid_t
	switch {
	case err != nil, len(h.next) >= mostTIDs:
		return syscall.EINVAL
	case tid >= most:
		return syscall.EPERM
	case !h.next[tid]:
		h.next[tid], h.added = true, append(h.added, tid)
	}
	return nil
}

// mostTIDs bounds how many ids a list has.
const mostTIDs = 100_000

func (h *tidHandle) flush() error {
	if !h.dirty {
		return nil
	}
	h.dirty = false
	err := h.words.end(h.word)
	return errors.Join(err, h.install())
}

func (h *tidHandle) install() error {
	var next map[int]bool
	if len(h.next) > 0 {
		next = maps.Clone(h.next)
	}
	h.in.fs.mu.Lock()
	defer h.in.fs.mu.Unlock()
	return h.in.change(func(s *settings) { *h.of(s) = next })
}

func (h *tidHandle) close() {
	if h.empty {
		_ = h.install()
	}
}
