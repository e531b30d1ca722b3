package trace

import "math/bits"

// A funcTable maps functions to small numbers; 0 means none yet. Ids are dense,
// so that pages of an array serve; what damaged events name goes to a map.
type funcTable struct {
	images [][]*funcPage
	far    map[FuncID]*int32
}

type funcPage [1 << funcPageBits]int32

const (
	funcPageBits = 10
	maxFuncPages = 1 << 11 // 2 million functions an image
	maxImages    = 1 << 12
)

// slot returns the entry of fn.
func (t *funcTable) slot(fn FuncID) *int32 {
	if int(fn.Image) < len(t.images) {
		pages := t.images[fn.Image]
		if p := int(fn.ID >> funcPageBits); p < len(pages) && pages[p] != nil {
			return &pages[p][fn.ID&(1<<funcPageBits-1)]
		}
	}
	return t.grow(fn)
}

func (t *funcTable) grow(fn FuncID) *int32 {
	p := int(fn.ID >> funcPageBits)
	if p >= maxFuncPages || fn.Image >= maxImages {
		s := t.far[fn]
		if s == nil {
			s = new(int32)
			if t.far == nil {
				t.far = map[FuncID]*int32{}
			}
			t.far[fn] = s
		}
		return s
	}
	for int(fn.Image) >= len(t.images) {
		t.images = append(t.images, nil)
	}
	pages := t.images[fn.Image]
	for p >= len(pages) {
		pages = append(pages, nil)
	}
	t.images[fn.Image] = pages
	if pages[p] == nil {
		pages[p] = new(funcPage)
	}
	return &pages[p][fn.ID&(1<<funcPageBits-1)]
}

func (q *sqSum) addSquare(v uint64) {
	hi, lo := bits.Mul64(v, v)
	q.add(sqSum{hi, lo})
}

func (q *sqSum) add(o sqSum) {
	var carry uint64
	q.lo, carry = bits.Add64(q.lo, o.lo, 0)
	q.hi, _ = bits.Add64(q.hi, o.hi, carry)
}
