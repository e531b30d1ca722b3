package patch

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/fentry-dev/fentry/elfio"
)

// Injection gives the plan as what elfio adds to a file. The plan must have
// been made with Target [File]. All old bytes have been compared.
func (p *Plan) Injection() (elfio.Injection, error) {
	if p.Options.Target != File {
		return elfio.Injection{}, fmt.Errorf("plan is for a process, not for a file")
	}
	in := elfio.Injection{
		Layout: p.layout, RX: p.RX, RWSize: p.RWSize, Entry: p.Entry, EhFrameHdr: p.ehFrameHdr,
		Sections: p.Sections, Symbols: p.Symbols, Moved: p.moved,
	}
	for _, e := range p.Edits {
		off, ok := p.file.Offset(e.Addr)
		if !ok {
			return elfio.Injection{}, &MismatchError{Addr: e.Addr, Func: e.Func, Expected: e.Old}
		}
		now, err := p.file.Bytes(e.Addr, len(e.Old))
		if err != nil || string(now) != string(e.Old) {
			return elfio.Injection{}, &MismatchError{Addr: e.Addr, Func: e.Func, Actual: now, Expected: e.Old}
		}
		in.Edits = append(in.Edits, elfio.RawEdit{Off: off, New: e.New})
	}
	in.Edits = append(in.Edits, p.raw...)
	if len(p.BuildID) > 0 {
		e, err := p.file.BuildIDEdit(p.newBuildID())
		if err != nil {
			return elfio.Injection{}, err
		}
		in.Edits = append(in.Edits, e)
	}
	return in, nil
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
	in, err := p.Injection()
	if err != nil {
		return nil, err
	}
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
