package trace

// A funcTable maps functions to small numbers; 0 means none yet. Ids are dense,
// so that arrays serve; what damaged events name goes to a map.
type funcTable struct {
	ids   []int32 // of image
	image uint32
	all   [][]int32 // by image
	far   map[FuncID]*int32
}

const (
	maxTableIDs = 1 << 20 // functions an image
	maxImages   = 1 << 12
)

// slot returns the entry of fn, good until the next call.
func (t *funcTable) slot(fn FuncID) *int32 {
	if fn.Image == t.image && int64(fn.ID) < int64(len(t.ids)) {
		return &t.ids[fn.ID]
	}
	return t.find(fn)
}

func (t *funcTable) find(fn FuncID) *int32 {
	if fn.ID >= maxTableIDs || fn.Image >= maxImages {
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
	for int(fn.Image) >= len(t.all) {
		t.all = append(t.all, nil)
	}
	ids := t.all[fn.Image]
	if n := int(fn.ID) + 1; n > len(ids) {
		ids = append(ids, make([]int32, max(n, min(2*len(ids), maxTableIDs))-len(ids))...)
		t.all[fn.Image] = ids
	}
	t.ids, t.image = ids, fn.Image
	return &ids[fn.ID]
}
