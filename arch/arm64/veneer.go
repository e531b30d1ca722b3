package arm64

import "fmt"

// Veneers is an island: room for veneers, through which branches reach targets that are too far away. The zero value
// has no room. Branches to the same target share a veneer.
type Veneers struct {
	Addr    uint64 // of the first veneer, a multiple of InstLen
	Size    uint64 // bytes, VeneerLen for each veneer
	targets []uint64
	index   map[uint64]int
}

// Route returns where a branch at address from must go to arrive at address to: to itself if the branch Reaches it,
// else a veneer, which is added if there is none yet. It returns a *RangeError if the branch cannot reach the veneer
// or the veneer the target, and an error if the island is full.
func (v *Veneers) Route(from, to uint64) (uint64, error) {
	if Reaches(from, to) {
		return to, nil
	}
	if v == nil || v.Size < VeneerLen {
		return 0, &RangeError{"branch", from, to, int64(to - from), 28}
	}
	k, ok := v.index[to]
	if !ok {
		k = len(v.targets)
	}
	at := v.Addr + uint64(k)*VeneerLen
	if !ok && uint64(k+1) > v.Size/VeneerLen {
		return 0, fmt.Errorf("branch at %#x to %#x: the island of %d veneers at %#x is full",
			from, to, v.Size/VeneerLen, v.Addr)
	}
	if !Reaches(from, at) {
		return 0, &RangeError{"branch to a veneer", from, at, int64(at - from), 28}
	}
	if ok {
		return at, nil
	}
	if _, err := AppendVeneer(nil, at, to); err != nil {
		return 0, err
	}
	if v.index == nil {
		v.index = map[uint64]int{}
	}
	v.index[to] = k
	v.targets = append(v.targets, to)
	return at, nil
}

// find returns what Route would return, if it need not add a veneer.
func (v *Veneers) find(from, to uint64) (uint64, bool) {
	if Reaches(from, to) {
		return to, true
	}
	if v == nil {
		return 0, false
	}
	k, ok := v.index[to]
	at := v.Addr + uint64(k)*VeneerLen
	return at, ok && Reaches(from, at)
}

// Used returns how many bytes of the island are taken by veneers.
func (v *Veneers) Used() int { return len(v.targets) * VeneerLen }

// Append appends the veneers in order: Used bytes for address Addr.
func (v *Veneers) Append(dst []byte) ([]byte, error) {
	n := len(dst)
	for k, to := range v.targets {
		var err error
		if dst, err = AppendVeneer(dst, v.Addr+uint64(k)*VeneerLen, to); err != nil {
			return dst[:n], err
		}
	}
	return dst, nil
}
