package patch

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/record"
)

// Sites out of reach.
//
// Branches reach 128 MiB, what is added lies behind everything that is loaded, and
// images can be larger. A site from which its thunk cannot be reached goes there by
// a veneer, and comes back by one:
//
//	site:    b island            or, where it has room for three instructions, the veneer itself
//	         bti c               where there is room for it: veneers need a landing pad in guarded pages
//	body:    ...
//	island:  adrp x16, landing; add x16, x16, #:lo12:landing; br x16      in the image's code
//	landing: bti c; b thunk                                               beside the thunks
//	back:    adrp x16, body; add x16, x16, #:lo12:body; br x16            in place of body in the thunk
//
// Islands are made of the nops between functions, which only alignment needs. They
// are taken behind functions of known size that end with a jump, a return or a call
// that does not return, where no branch goes to. Where there is none, the function
// is left alone: record.ReasonOutOfReach. Functions compiled with
// -fpatchable-function-entry=4 (or 3, in pages that are not guarded) need none.

// farSite is how a site out of reach gets to its thunk and back.
type farSite struct {
	island  uint64 // address of the veneer in the code; the site's own where it has room
	landing uint64 // where that goes
	back    uint64 // address of the veneer back to the body, 0 for sites behind a prologue
	body    uint64 // where that goes
}

// farSize is the room that a far site takes beside the thunks.
const farSize = arm64.LandingLen + arm64.VeneerLen

// reach decides how sites get to their thunks, and the runtime to the image's entry
// point.
func (m *arm64Machine) reach(p *Plan) {
	m.routes(p)
	m.farAt = p.RXAddr + uint64(p.Traced())*arch.ThunkSize
	m.farEntry = !arm64.Reaches(m.farAt+uint64(m.veneers())+maxRuntime, p.OrigEntry)
}

// maxRuntime is more than the runtime's code has.
const maxRuntime = 1 << 20

// routes decides how sites get to their thunks.
func (m *arm64Machine) routes(p *Plan) {
	far := m.farSites(p)
	if len(far) == 0 {
		return
	}
	guarded := hasBTI(p.file)
	m.far = make(map[uint32]*farSite)
	var islands []uint64
	if m.needIslands(p, far) {
		islands = findIslands(p)
	}
	kept := make([]*farSite, 0, len(far))
	owners := make([]int, 0, len(far))
	for _, i := range far {
		fn := &p.Functions[i]
		f := &farSite{body: fn.End()}
		behind := fn.Ret != record.RetLR
		// Where there is room, a landing pad takes the site's last word.
		room := fn.Len
		if !behind && (room >= arm64.VeneerLen+arm64.InstLen || room >= 2*arm64.InstLen && (guarded || room < arm64.VeneerLen)) {
			f.body -= arm64.InstLen
			room -= arm64.InstLen
		} else if !behind && guarded && !isLanding(p.file, f.body) {
			fn.leave(record.ReasonOutOfReach)
			continue
		}
		switch {
		case !behind && room >= arm64.VeneerLen:
			f.island = fn.Addr
		default:
			// Both lists ascend: what is too far back for this site is so for all that follow.
			for len(islands) > 0 && islands[0] < fn.Addr && !arm64.Reaches(fn.Addr, islands[0]) {
				islands = islands[1:]
			}
			if len(islands) == 0 || !arm64.Reaches(fn.Addr, islands[0]) {
				fn.leave(record.ReasonOutOfReach)
				continue
			}
			f.island, islands = islands[0], islands[1:]
			m.veneersInCode = append(m.veneersInCode, f.island)
		}
		kept, owners = append(kept, f), append(owners, i)
	}
	p.number()
	at := p.RXAddr + uint64(p.Traced())*arch.ThunkSize
	for k, f := range kept {
		fn := &p.Functions[owners[k]]
		f.landing, f.back = at, at+arm64.LandingLen
		if fn.Ret != record.RetLR {
			f.back = 0
		}
		at += farSize
		m.far[fn.ID] = f
	}
}

// farSites returns the indices of the traced functions that are out of their
// thunk's reach. If some of them are left alone, the thunks of others come nearer,
// never out of reach.
func (m *arm64Machine) farSites(p *Plan) (far []int) {
	for i := range p.Functions {
		fn := &p.Functions[i]
		if fn.ID == 0 {
			continue
		}
		t := p.RXAddr + uint64(fn.ID-1)*arch.ThunkSize
		ok := arm64.Reaches(fn.Addr, t)
		if fn.Ret == record.RetLR { // the thunk goes on to the body from places in it
			ok = ok && arm64.Reaches(t+arm64.ThunkCallEnd, fn.End()) && arm64.Reaches(t+arm64.ThunkBypass, fn.End())
		}
		if !ok {
			far = append(far, i)
		}
	}
	return far
}

// needIslands reports whether one of the sites has no room for its veneer.
func (m *arm64Machine) needIslands(p *Plan, far []int) bool {
	return slices.ContainsFunc(far, func(i int) bool {
		return p.Functions[i].Ret != record.RetLR || p.Functions[i].Len < arm64.VeneerLen+arm64.InstLen // as a landing pad may take one
	})
}

// findIslands returns places for veneers, ascending.
func findIslands(p *Plan) []uint64 {
	var out []uint64
	index := map[uint64]int{} // of the words
	for i := range p.Functions {
		fn := &p.Functions[i]
		if i+1 == len(p.Functions) || fn.Size == 0 || fn.Size%arm64.InstLen != 0 || p.Functions[i+1].Func <= fn.Func {
			continue
		}
		end, next := fn.Func+fn.Size, p.Functions[i+1].Func
		if end+arm64.VeneerLen > next || next-end > 1<<16 {
			continue
		}
		b, err := p.file.Bytes(end-arm64.InstLen, int(next-end)+arm64.InstLen)
		if err != nil {
			continue
		}
		in := arm64.DecodeWord(binary.LittleEndian.Uint32(b))
		if !in.Op.EndsBlock() && in.Op != arm64.Call && in.Op != arm64.CallInd && in.Op != arm64.Brk {
			continue
		}
		for at := end; arm64.IsNops(b[arm64.InstLen+at-end:]) >= arm64.VeneerLen && at+arm64.VeneerLen <= next; at += arm64.VeneerLen {
			for o := uint64(0); o < arm64.VeneerLen; o += arm64.InstLen {
				index[at+o] = len(out)
			}
			out = append(out, at)
		}
	}
	return dropTargets(p.file, out, index)
}

// dropTargets leaves out the islands that a branch of the image goes to.
func dropTargets(f *elfio.File, islands []uint64, index map[uint64]int) []uint64 {
	if len(islands) == 0 {
		return nil
	}
	hit := make([]bool, len(islands))
	lo, hi := islands[0], islands[len(islands)-1]+arm64.VeneerLen
	for _, pr := range f.Progs {
		if pr.Type != elf.PT_LOAD || pr.Flags&elf.PF_X == 0 {
			continue
		}
		b, err := f.Bytes(pr.Vaddr, int(pr.Filesz))
		if err != nil {
			return nil
		}
		for at := uint64(0); at+arm64.InstLen <= uint64(len(b)); at += arm64.InstLen {
			w := binary.LittleEndian.Uint32(b[at:])
			if w>>26&7 != 5 {
				continue // no branch
			}
			in := arm64.DecodeWord(w)
			if in.PCRel != arm64.PCRelBranch {
				continue
			}
			if t := in.Target(pr.Vaddr + at); t >= lo && t < hi {
				if k, ok := index[t]; ok {
					hit[k] = true
				}
			}
		}
	}
	k := -1
	return slices.DeleteFunc(islands, func(uint64) bool { k++; return hit[k] })
}

// isLanding reports whether br may go to an address in guarded pages.
func isLanding(f *elfio.File, addr uint64) bool {
	b, err := f.Bytes(addr, arm64.InstLen)
	if err != nil {
		return false
	}
	op := arm64.DecodeWord(binary.LittleEndian.Uint32(b)).Op
	return op == arm64.Bti || op == arm64.PacSP
}

// hasBTI reports whether loaders guard the image's pages (GNU_PROPERTY_AARCH64_FEATURE_1_BTI;
// ELF for the Arm 64-bit Architecture, "Program property").
func hasBTI(f *elfio.File) bool {
	const feature1, bti = 0xc0000000, 1
	notes, err := f.Notes()
	if err != nil {
		return true // what is not known is believed to be so
	}
	for _, n := range notes {
		if n.Name != "GNU" || n.Type != elfio.NTGNUProperty {
			continue
		}
		for d := n.Desc; len(d) >= 8; {
			size := uint64(le.Uint32(d[4:]))
			if size > uint64(len(d)-8) {
				break
			}
			if le.Uint32(d) == feature1 && size >= 4 && le.Uint32(d[8:])&bti != 0 {
				return true
			}
			d = d[min(8+(size+7)&^7, uint64(len(d))):]
		}
	}
	return false
}

// veneers is the room for what far sites have beside the thunks; behind that there is
// the veneer to the entry point.
func (m *arm64Machine) veneers() int {
	n := len(m.far) * farSize
	if m.farEntry {
		n += arm64.VeneerLen
	}
	return n
}

func (m *arm64Machine) entry(orig uint64) uint64 {
	if m.farEntry {
		return m.farAt + uint64(len(m.far)*farSize)
	}
	return orig
}

// encodeVeneers fills it.
func (m *arm64Machine) encodeVeneers(p *Plan, dst []byte) error {
	if at := m.entry(p.OrigEntry); at != p.OrigEntry {
		if _, err := arm64.AppendVeneer(dst[at-m.farAt:][:0], at, p.OrigEntry); err != nil {
			return fmt.Errorf("entry point: %w", err)
		}
	}
	for i := range p.Functions {
		fn := &p.Functions[i]
		f := m.far[fn.ID]
		if fn.ID == 0 || f == nil {
			continue
		}
		b := dst[f.landing-m.farAt:][:0:farSize]
		b, err := arm64.AppendLanding(b, f.landing, p.RXAddr+uint64(fn.ID-1)*arch.ThunkSize)
		if err == nil && f.back != 0 {
			_, err = arm64.AppendVeneer(b, f.back, f.body)
		}
		if err != nil {
			return fmt.Errorf("%s at %#x: %w", fn.Name, fn.Addr, err)
		}
	}
	return nil
}

// islands are the edits that make veneers of nops between functions.
func (m *arm64Machine) islands(p *Plan) (edits []Edit, err error) {
	for i := range p.Functions {
		fn := &p.Functions[i]
		f := m.far[fn.ID]
		if fn.ID == 0 || f == nil || f.island == fn.Addr {
			continue
		}
		b, err := arm64.AppendVeneer(nil, f.island, f.landing)
		if err != nil {
			return nil, fmt.Errorf("%s at %#x: %w", fn.Name, fn.Addr, err)
		}
		edits = append(edits, Edit{Addr: f.island, Old: arm64.AppendNops(nil, len(b)), New: b, Func: fn.Name, Reason: "veneer"})
	}
	return edits, nil
}
