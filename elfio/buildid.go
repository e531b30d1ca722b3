package elfio

import "fmt"

// BuildIDEdit returns the edit that gives the image another build-id, of the length of the present one. Tools
// such as perf and debuginfod cache by build-id and would otherwise take an injected image for the original.
func (f *File) BuildIDEdit(id []byte) (RawEdit, error) {
	n := f.buildIDNote()
	if n == nil {
		return RawEdit{}, fmt.Errorf("image has no build-id")
	}
	if len(id) != len(n.Desc) {
		return RawEdit{}, formatErr("build-id", n.DescOff, "%d bytes cannot replace its %d", len(id), len(n.Desc))
	}
	return RawEdit{Off: n.DescOff, New: id}, nil
}
