package elfio

import "crypto/sha256"

// BuildIDEdit returns an edit that gives the image a build-id of its own, derived from the present one
// and salt, of the same length. Tools that cache by build-id then do not take the injected image for the
// original. ok is false for an image without a build-id.
func (f *File) BuildIDEdit(salt []byte) (edit RawEdit, ok bool) {
	n := f.buildIDNote()
	if n == nil {
		return RawEdit{}, false
	}
	id := make([]byte, 0, len(n.Desc)+sha256.Size)
	sum := sha256.Sum256(append(append([]byte("fentry build-id\x00"), n.Desc...), salt...))
	for len(id) < len(n.Desc) {
		id = append(id, sum[:]...)
		sum = sha256.Sum256(sum[:])
	}
	return RawEdit{Off: n.DescOff, New: id[:len(n.Desc):len(n.Desc)]}, true
}
