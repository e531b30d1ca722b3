package patch

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/parallel"
)

// Injection gives the plan as what elfio adds to a file. The plan must have
// been made with Target [File]. All old bytes have been compared.
func (p *Plan) Injection() (elfio.Injection, error) { return p.injection(p.newBuildID()) }

// injection is Injection with the build-id of the patched image, which may change
// afterwards.
func (p *Plan) injection(id []byte) (elfio.Injection, error) {
	if p.Options.Target != File {
		return elfio.Injection{}, fmt.Errorf("plan is for a process, not for a file")
	}
	in := elfio.Injection{
		Layout: p.layout, RX: p.RX, RWSize: p.RWSize, Entry: p.Entry, EhFrameHdr: p.ehFrameHdr,
		Sections: p.Sections, SymbolRuns: []elfio.SymbolRun{p.thunkSymbols()}, Symbols: p.Symbols, Moved: p.moved,
		Edits: p.siteEdits(),
	}
	if err := p.unchanged(in.Edits); err != nil {
		return elfio.Injection{}, err
	}
	for _, e := range p.hidden {
		off, ok := p.file.Offset(e.Addr)
		if !ok {
			return elfio.Injection{}, &MismatchError{Addr: e.Addr, Func: e.Func, Expected: e.Old}
		}
		in.Edits = append(in.Edits, elfio.RawEdit{Off: off, New: e.New})
	}
	in.Edits = append(in.Edits, p.raw...)
	if len(p.BuildID) > 0 {
		e, err := p.file.BuildIDEdit(id)
		if err != nil {
			return elfio.Injection{}, err
		}
		in.Edits = append(in.Edits, e)
	}
	return in, nil
}

// siteEdits returns the edits of all sites, as fill made them.
func (p *Plan) siteEdits() []elfio.RawEdit {
	if p.sites != nil {
		return p.sites
	}
	out := make([]elfio.RawEdit, p.edited)
	for i := range p.Functions {
		if fn := &p.Functions[i]; fn.Action != Leave {
			off, _ := p.file.Offset(fn.Addr)
			out[fn.edit] = elfio.RawEdit{Off: off, New: p.after[fn.at : fn.at+fn.Len]}
		}
	}
	return out
}

// unchanged compares the sites with what they were when the edits were planned.
func (p *Plan) unchanged(sites []elfio.RawEdit) error {
	raw := p.file.Raw()
	const piece = 4096 // functions
	errs := make([]error, (len(p.Functions)+piece-1)/piece)
	parallel.Ranges(len(p.Functions), piece, func(from, to int) {
		for i := from; i < to; i++ {
			fn := &p.Functions[i]
			if fn.Action == Leave {
				continue
			}
			e := &sites[fn.edit]
			now, old := raw[e.Off:e.Off+uint64(len(e.New))], p.before[fn.at:fn.at+len(e.New)]
			if string(now) != string(old) {
				errs[from/piece] = &MismatchError{Addr: fn.Addr, Func: fn.Name, Actual: now, Expected: old}
				break
			}
		}
	})
	return cmp.Or(errs...)
}

// newBuildID is the build-id of the patched image, as long as the original one.
// perf and debuginfod cache files by build-id; with the old one they would show
// the code as it was.
func (p *Plan) newBuildID() []byte {
	h := sha256.New()
	h.Write([]byte("fentry"))
	h.Write(p.BuildID)
	h.Write(p.RX)
	id := h.Sum(nil)
	for len(id) < len(p.BuildID) {
		id = append(id, id...)
	}
	return id[:len(p.BuildID)]
}

// Output is the patched file as the difference to the original, for large ones.
func (p *Plan) Output() (*elfio.Output, error) {
	// The new build-id takes as long as all the rest, which does not need it but to
	// copy it, where notes move.
	id := make([]byte, len(p.BuildID))
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { copy(id, p.newBuildID()) })
	if strings.Contains(p.layout.Slot, "move") {
		wg.Wait()
	}
	in, err := p.injection(id)
	if err != nil {
		return nil, err
	}
	in.TakeEdits, p.sites = true, nil
	return p.file.PlanInject(in)
}

// Image is the patched file.
func (p *Plan) Image() ([]byte, error) {
	o, err := p.Output()
	if err != nil {
		return nil, err
	}
	return o.Bytes(), nil
}

// Undo gives back, byte for byte, the file an image was patched from.
// The error is [ErrNotPatched] for an image that carries nothing of fentry's.
func Undo(image []byte) ([]byte, error) {
	orig, err := elfio.Uninject(image)
	if errors.Is(err, elfio.ErrNotInjected) {
		return nil, ErrNotPatched
	}
	return orig, err
}
