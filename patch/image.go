package patch

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/inject"
	"github.com/fentry-dev/fentry/internal/parallel"
)

// Files.
//
// A plan for a file is given as the difference to the original, which is not changed: elfio makes the new file of the
// original's own pages, the windows, and what is added behind them. So of the engine that compares and then writes
// only the first half is used here; there is nothing to be taken back when writing fails. The comparison comes last,
// when the file is asked for: the original may be mapped, and somebody else may have written to it since it was
// planned.

// injection is what elfio adds to the file, with the build-id of the patched image, which may change
// afterwards. All old bytes have been compared.
func (p *Plan) injection(id []byte) (inject.Injection, error) {
	l := p.l
	in := inject.Injection{
		Layout: l.seg, RX: l.rx, RWSize: l.rwSize, Entry: p.Entry, EhFrameHdr: l.ehFrameHdr,
		Sections: l.sections, Symbols: l.symbols(), Moved: l.moved, Edits: l.fileEdits(),
	}
	if p.golang == nil || l.thunks > 0 {
		in.SymbolRuns = p.thunkSymbols()
	}
	if err := p.unchanged(); err != nil {
		return inject.Injection{}, err
	}
	for _, e := range l.tables {
		off, ok := p.file.Offset(e.Addr)
		if !ok {
			return inject.Injection{}, e.Bug(arch.Fault, nil, nil)
		}
		in.Edits = append(in.Edits, elfio.RawEdit{Off: off, New: e.New})
	}
	in.Edits = append(in.Edits, l.dynamic...)
	if len(p.BuildID) > 0 {
		e, err := p.file.BuildIDEdit(id)
		if err != nil {
			return inject.Injection{}, err
		}
		in.Edits = append(in.Edits, e)
	}
	return in, nil
}

// fileEdits returns the windows as edits of the file. Whoever takes the slice over has to set l.raw to nil.
func (l *layout) fileEdits() []elfio.RawEdit {
	if l.raw != nil {
		return l.raw
	}
	out := make([]elfio.RawEdit, len(l.windows))
	for i, w := range l.windows {
		off, _ := l.p.file.Offset(w.addr)
		out[i] = elfio.RawEdit{Off: off, New: l.after[w.at : w.at+uint32(w.n)]}
	}
	return out
}

// unchanged compares the image with what it was when it was planned.
func (p *Plan) unchanged() error {
	if p.l.scattered {
		return arch.Compare(&segment{f: p.file}, 0, arch.All(p.l.allEdits()))
	}
	if err := arch.Compare(&segment{f: p.file}, 0, arch.All(p.l.tables)); err != nil {
		return err
	}
	return p.overFunctions(func(from, to int) error {
		return arch.Compare(&segment{f: p.file}, 0, p.l.edits(from, to))
	})
}

// newBuildID is the build-id of the patched image, as long as the original one.
// perf and debuginfod cache files by build-id; with the old one they would show
// the code as it was.
func (p *Plan) newBuildID() []byte {
	h := sha256.New()
	h.Write([]byte("fentry"))
	h.Write(p.BuildID)
	h.Write(p.l.rx)
	id := h.Sum(nil)
	for len(id) < len(p.BuildID) {
		id = append(id, id...)
	}
	return id[:len(p.BuildID)]
}

// Output returns the patched file as a difference from the original, for large files.
func (p *Plan) Output() (*elfio.Output, error) {
	if p.Options.Target != File {
		return nil, fmt.Errorf("plan is for a process, not for a file")
	}
	if err := p.Build(); err != nil {
		return nil, err
	}
	// The new build-id takes as long as all the rest, which does not need it but to
	// copy it, where notes move.
	id := make([]byte, len(p.BuildID))
	wait := parallel.Beside(func() { copy(id, p.newBuildID()) })
	defer wait()
	if strings.Contains(p.l.seg.Slot, "move") {
		wait()
	}
	in, err := p.injection(id)
	if err != nil {
		return nil, err
	}
	in.TakeEdits, p.l.raw = true, nil
	return inject.Into(p.file, in)
}

// Image returns the patched file.
func (p *Plan) Image() ([]byte, error) {
	o, err := p.Output()
	if err != nil {
		return nil, err
	}
	return o.Bytes(), nil
}

// Undo returns, byte for byte, the file that an image was patched from. It returns [ErrNotPatched] if fentry has not
// patched the image.
func Undo(image []byte) ([]byte, error) {
	orig, err := inject.Undo(image)
	if errors.Is(err, inject.ErrNotInjected) {
		return nil, ErrNotPatched
	}
	return orig, err
}
