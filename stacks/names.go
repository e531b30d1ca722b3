//go:build linux

package stacks

import (
	"fmt"
	"os"
	"strings"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/symbol"
)

// A Name is a function that a frame is in.
type Name struct {
	Func    string      // raw name, "" if unknown
	Offset  uint64      // of the frame's pc from its first byte
	Line    symbol.Line // zero if unknown
	Inlined bool        // into the next one
	Image   string      // path of its program or library, "" if it is in none
	// Moved: tracing has moved the instruction; Offset counts from where it was moved to, and is 0.
	Moved bool
}

// Names returns the functions of a frame, innermost first: those that are inlined, and the one whose code it is. There is
// one at least.
func (p *Process) Names(f Frame) []Name {
	im, at := p.imageOf(f.At()), f.At()
	fn, ok := p.function(im, at)
	if !ok && im != nil { // a call that never returns can be the last instruction that unwind tables or symbols know
		fn, ok = p.function(im, f.PC)
	}
	whole := Name{Offset: f.PC}
	if !ok {
		if to, target, found := p.origin(f.PC); found {
			im, at, whole.Moved = to, target, true
			fn, ok = p.function(im, at)
		}
	}
	if im == nil {
		return []Name{{}}
	}
	whole.Image = im.path
	if !ok {
		whole.Offset = 0
		return []Name{whole}
	}
	whole.Func = fn.Name
	whole.Offset -= im.bias + fn.Addr
	if whole.Moved {
		whole.Offset = 0
	}
	frames, err := im.symbols.Frames(at - im.bias)
	if err != nil || len(frames) == 0 {
		return []Name{whole}
	}
	var out []Name
	for _, fr := range frames[:len(frames)-1] {
		out = append(out, Name{Func: fr.Func, Line: fr.Line, Inlined: fr.Inlined, Image: im.path})
	}
	whole.Line = frames[len(frames)-1].Line
	return append(out, whole)
}

// function returns the function of an image that has an address.
func (p *Process) function(im *image, at uint64) (symbol.Func, bool) {
	if im == nil {
		return symbol.Func{}, false
	}
	tab := p.table(im)
	if tab == nil {
		return symbol.Func{}, false
	}
	return tab.Lookup(at - im.bias)
}

// table opens the symbols of an image, nil if there are none.
func (p *Process) table(im *image) *symbol.Table {
	if im.tried {
		return im.symbols
	}
	im.tried = true
	if path := p.file(im); path != "" {
		o := p.symbols
		o.Path = im.path
		im.symbols, _ = symbol.Open(path, o)
	}
	return im.symbols
}

// file is the path of an image's file, "" if it is not there or not the one that was loaded.
func (p *Process) file(im *image) string {
	paths := []string{fmt.Sprintf("/proc/%d/root%s", p.PID, im.path), im.path}
	if im.main {
		paths = append(paths, p.proc("exe"))
	}
	for _, path := range paths {
		if fi, err := os.Stat(path); err == nil && strings.HasPrefix(im.path, "/") && inode(fi) == im.inode {
			return path
		}
	}
	return ""
}

// origin says where code belongs that tracing has moved: to the function that it goes on in. It ends with a jump back, so
// the first jump to a function tells.
func (p *Process) origin(pc uint64) (im *image, at uint64, ok bool) {
	const (
		most = 256 // bytes that are looked at
		room = 16  // of the longest instruction
	)
	if host != &x86_64 {
		return nil, 0, false
	}
	code, err := p.mem.bytes(pc, most)
	if err != nil {
		return nil, 0, false
	}
	for n := 0; n+room <= len(code); {
		in, err := amd64.Decode(code[n:])
		if err != nil {
			break
		}
		if in.Op == amd64.Jmp && in.PCRel == amd64.PCRelBranch {
			at := in.Target(pc + uint64(n))
			im := p.imageOf(at)
			if _, ok := p.function(im, at); ok {
				return im, at, true
			}
		}
		n += in.Len
	}
	return nil, 0, false
}
