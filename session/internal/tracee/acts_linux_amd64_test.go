package tracee

import (
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/amd64"
)

// The thunks of functions that have actions lead to the routines for these, and those of functions that had some not any more,
// wherever they are, alone or together; others stay.
func TestLeadThunks(t *testing.T) {
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	const sites = 3000
	size := uint64(amd64.ThunkSize(arch.ThunkGraph))
	room := make([]byte, sites*size+arch.ThunkSize)
	defer runtime.KeepAlive(room)
	begin := -uint64(uintptr(unsafe.Pointer(&room[0]))) % arch.ThunkSize
	thunks := room[begin:]
	base := uint64(uintptr(unsafe.Pointer(&thunks[0])))
	enter, exit, actEnter, actExit := base+1<<20, base+2<<20, base+3<<20, base+4<<20
	was := map[uint32]bool{2: true, 3: true, 1500: true, sites: true}
	for id := range uint32(sites) {
		thunk := amd64.Thunk{ID: id + 1, Kind: arch.ThunkGraph, Addr: base + uint64(id)*size, Switch: base, Body: base, Enter: enter, Exit: exit}
		if was[id+1] {
			thunk.Enter = actEnter
		}
		if err := thunk.Encode(thunks[uint64(id)*size:][:size]); err != nil {
			t.Fatal(err)
		}
	}
	im := &RuntimeImage{ID: 1, Sites: sites, thunks: base, thunkSize: int(size)}
	r := newRuntime(&Process{pid: os.Getpid(), mem: mem}, nil)
	r.routes = map[routesKey]*routes{{im.ID, im.Loaded, im.thunks, im.thunkSize}: {
		there: map[uint64]uint64{enter: actEnter, exit: actExit},
		back:  map[uint64]uint64{actEnter: enter, actExit: exit},
	}}
	p := &placedActs{im: im, exits: map[uint32]bool{1: false, 3: true, 60: true, 1000: false, 2999: true},
		ids: []uint32{1, 2, 3, 60, 1000, 1500, 2999, sites}}
	if err := r.leadThunksOf(p); err != nil {
		t.Fatal(err)
	}
	checkPieces(t, r, p)
	for id := uint32(1); id <= sites; id++ {
		at := uint64(id-1) * size
		wantEnter, wantExit := enter, exit
		atExit, acts := p.exits[id]
		if acts {
			wantEnter = actEnter
		}
		if atExit {
			wantExit = actExit
		}
		thunk := thunks[at : at+size]
		if got := base + at + target(thunk, amd64.ThunkEnterCall, amd64.ThunkEnterEnd); got != wantEnter {
			t.Errorf("function %d calls %#x, want %#x", id, got, wantEnter)
		}
		if got := base + at + target(thunk, amd64.ThunkExitCall, amd64.ThunkExitEnd); got != wantExit {
			t.Errorf("function %d returns to %#x, want %#x", id, got, wantExit)
		}
	}
}

// checkPieces checks that thunks are written in pieces between which there is time to look at the clock, all of those that have to
// be, and no others.
func checkPieces(t *testing.T, r *Runtime, p *placedActs) {
	t.Helper()
	all := &placedActs{im: p.im}
	for id := range uint32(p.im.Sites) {
		all.ids = append(all.ids, id+1)
	}
	pieces, err := r.ledOf(all, func(uint32) (acts, exit bool) { return true, false })
	if err != nil {
		t.Fatal(err)
	}
	written, least := 0, p.im.Sites*p.im.thunkSize/ledStep
	for _, l := range pieces {
		if written += len(l.code); len(l.code) > ledStep {
			t.Errorf("%d bytes at once", len(l.code))
		}
	}
	if n := p.im.Sites * p.im.thunkSize; len(pieces) <= least || written > n || written < n-len(p.ids)*p.im.thunkSize {
		t.Errorf("%d bytes in %d pieces; there are %d", written, len(pieces), n)
	}
	none, err := r.ledOf(p, func(id uint32) (acts, exit bool) { exit, acts = p.exits[id]; return acts, exit })
	if err != nil || len(none) != 0 {
		t.Errorf("%d pieces are still to be written: %v", len(none), err)
	}
}
