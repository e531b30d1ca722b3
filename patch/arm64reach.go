package patch

import (
	"slices"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/record/code"
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
//
// A displaced instruction is beside the thunks, and its branch back goes to a veneer.
// In guarded pages there is no landing pad behind the site, so such functions are left
// alone there.

// place adds thunks and veneers.
func (m arm64Machine) place(l *layout) error {
	detours := m.detours(l)
	l.addThunks()
	if err := l.addDisplaced(m); err != nil {
		return err
	}
	for i := range detours {
		m.addVeneers(l, &detours[i])
	}
	m.placeStart(l)
	for _, d := range detours {
		if d.island != 0 {
			at, landing := d.island, d.landing
			pc := veneer(at, landing, d.fn)
			pc.addr = at
			l.pieces = append(l.pieces, pc)
		}
	}
	return nil
}

// placeStart adds a veneer by which the runtime reaches the program's own entry point, if that is far away.
func (arm64Machine) placeStart(l *layout) {
	if at, orig := l.end(), l.orig; !arm64.Reaches(at+maxRuntime, orig) {
		l.orig = l.add(veneer(at, orig, nobody))
	}
}

// veneer is a veneer at address at, which goes to to.
func veneer(at, to uint64, owner int) piece {
	return piece{
		name: ".fentry.veneers", code: true, size: arm64.VeneerLen, align: arm64.InstLen, owner: owner,
		rows:  arm64.VeneerRows(),
		write: func(dst []byte) ([]byte, error) { return arm64.AppendVeneer(dst, at, to) },
	}
}

// addVeneers adds what a site out of reach has beside the thunks, and sets its route.
func (arm64Machine) addVeneers(l *layout, d *detour) {
	fn := &l.p.Functions[d.fn]
	if displaces(fn) {
		fn.back = l.add(veneer(l.end(), d.body, d.fn))
	}
	r := l.route(d.fn)
	at, thunk := l.end(), r.to
	d.landing = l.add(piece{
		name: ".fentry.veneers", code: true, size: arm64.LandingLen, align: arm64.InstLen, owner: d.fn,
		rows:  arm64.VeneerRows(),
		write: func(dst []byte) ([]byte, error) { return arm64.AppendLanding(dst, at, thunk) },
	})
	if fn.Ret == record.RetLR && !displaces(fn) {
		r.body = l.add(veneer(l.end(), d.body, d.fn))
	}
	r.pad = d.body != fn.End()
	if r.to = d.island; d.island == 0 {
		r.to, r.veneer = d.landing, true
	}
	if l.routes == nil {
		l.routes = map[int]route{}
	}
	l.routes[d.fn] = r
}

// displacedEnd is an address behind everything that sites displace, before it is laid out: it stands behind the thunks.
func (m arm64Machine) displacedEnd(l *layout) uint64 {
	end := l.thunk(uint32(l.thunks)+1) + uint64(l.thunks*l.backSize) + 2*maxAlign
	for i := range l.p.Functions {
		if fn := &l.p.Functions[i]; displaces(fn) {
			end += uint64(m.displacedLen(fn.Site))
		}
	}
	return end
}

// maxAlign is more than alignment puts between thunks and displaced instructions.
const maxAlign = 64

// canReturn reports whether a function that is out of reach can be entered by a veneer behind its displaced instruction,
// which must not have put anything into the veneer's register; and whether that reaches what it branches to.
func (arm64Machine) canReturn(fn *Func, guarded bool, end uint64) bool {
	const x16 = 1 << 16
	in, err := arm64.Decode(fn.Bytes)
	switch {
	case err != nil || guarded || arm64.Writes(in.Word)&x16 != 0 || in.Op == arm64.Call || in.Op == arm64.CallInd:
		return false
	case in.PCRel == arm64.PCRelBranch:
		return arm64.Reaches(end, in.Target(fn.Addr))
	}
	return true
}

// A detour is what a site out of reach needs.
type detour struct {
	fn      int    // index of the function
	island  uint64 // address of the veneer in the code; 0: in the site itself
	landing uint64 // where that goes
	body    uint64 // where the thunk goes on, by another veneer
}

// detours decides how sites out of reach get to their thunks. It leaves those alone that cannot.
func (m arm64Machine) detours(l *layout) []detour {
	p := l.p
	end := m.displacedEnd(l)
	far := m.farSites(l, end)
	if len(far) == 0 {
		return nil
	}
	guarded := p.file.Guarded()
	var islands []uint64
	if m.needIslands(p, far) {
		islands = findIslands(p)
	}
	kept := make([]detour, 0, len(far))
	for _, i := range far {
		fn := &p.Functions[i]
		d := detour{fn: i, body: fn.End()}
		behind := fn.Ret != record.RetLR
		// Where there is room, a landing pad takes the site's last word.
		room := fn.Len
		if displaces(fn) && !m.canReturn(fn, guarded, end) {
			fn.leave(record.ReasonOutOfReach)
			continue
		}
		pad := room >= arm64.VeneerLen+arm64.InstLen || room >= 2*arm64.InstLen && (guarded || room < arm64.VeneerLen)
		if !behind && pad {
			d.body -= arm64.InstLen
			room -= arm64.InstLen
		} else if !behind && guarded && !isLanding(p.file, d.body) {
			fn.leave(record.ReasonOutOfReach)
			continue
		}
		if behind || room < arm64.VeneerLen {
			// Both lists ascend: what is too far back for this site is so for all that follow.
			for len(islands) > 0 && islands[0] < fn.Addr && !arm64.Reaches(fn.Addr, islands[0]) {
				islands = islands[1:]
			}
			if len(islands) == 0 || !arm64.Reaches(fn.Addr, islands[0]) {
				fn.leave(record.ReasonOutOfReach)
				continue
			}
			d.island, islands = islands[0], islands[1:]
		}
		kept = append(kept, d)
	}
	l.number() // without those that have been left alone
	return kept
}

// farSites returns the indices of the traced functions that are out of their
// thunk's reach. If some of them are left alone, the thunks of others come nearer,
// never out of reach.
func (arm64Machine) farSites(l *layout, end uint64) (far []int) {
	for i := range l.p.Functions {
		fn := &l.p.Functions[i]
		t := l.thunkOf(fn)
		if t == 0 {
			continue
		}
		ok := arm64.Reaches(fn.Addr, t)
		if displaces(fn) {
			in := arm64.DecodeWord(le.Uint32(fn.Bytes))
			ok = arm64.Reaches(fn.Addr, end) && arm64.Reaches(end, fn.End()) &&
				(in.PCRel != arm64.PCRelBranch || arm64.Reaches(end, in.Target(fn.Addr)))
		} else if fn.Ret == record.RetLR { // the thunk goes on to the body from both of its parts
			back := alignUp(l.thunk(uint32(l.thunks)+1), arch.ThunkSize) + uint64(fn.ID-1)*uint64(l.backSize)
			ok = ok && arm64.Reaches(t+arm64.ThunkBypass, fn.End()) && arm64.Reaches(back, fn.End())
		}
		if !ok {
			far = append(far, i)
		}
	}
	return far
}

// needIslands reports whether one of the sites has no room for its veneer.
func (arm64Machine) needIslands(p *Plan, far []int) bool {
	return slices.ContainsFunc(far, func(i int) bool {
		fn := &p.Functions[i]
		return fn.Ret != record.RetLR || fn.Len < arm64.VeneerLen+arm64.InstLen // as a landing pad may take one
	})
}

// findIslands returns places for veneers, ascending, that no branch of the image goes to.
func findIslands(p *Plan) []uint64 {
	var out []uint64
	for i := range p.Functions {
		fn := &p.Functions[i]
		if i+1 == len(p.Functions) || fn.Size == 0 || fn.Size%arm64.InstLen != 0 || p.Functions[i+1].Func <= fn.Func ||
			p.golang.HasGo(fn.Func) {
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
		in := arm64.DecodeWord(le.Uint32(b))
		if !in.Op.EndsBlock() && in.Op != arm64.Call && in.Op != arm64.CallInd && in.Op != arm64.Brk {
			continue
		}
		nops := uint64(arm64.IsNops(b[arm64.InstLen:]))
		for at := end; at+arm64.VeneerLen <= min(end+nops, next); at += arm64.VeneerLen {
			out = append(out, at)
		}
	}
	return dropTargets(p.file, out)
}

// dropTargets leaves out the islands that a branch of the image goes to.
func dropTargets(f *elfio.File, islands []uint64) []uint64 {
	text, err := code.New(f)
	if err != nil || len(islands) == 0 {
		return nil
	}
	places := make([]code.Place, len(islands))
	for i, at := range islands {
		places[i] = code.Place{Lo: at, Hi: at + arm64.VeneerLen}
	}
	targets := code.NewTargets(code.MachineOf(f.Header.Machine))
	targets.ScanAll(text, places)
	return slices.DeleteFunc(islands, func(at uint64) bool {
		_, hit := targets.Lowest(at, at+arm64.VeneerLen)
		return hit
	})
}

// isLanding reports whether br may go to an address in guarded pages.
func isLanding(f *elfio.File, addr uint64) bool {
	b, err := f.Bytes(addr, arm64.InstLen)
	if err != nil {
		return false
	}
	op := arm64.DecodeWord(le.Uint32(b)).Op
	return op == arm64.Bti || op == arm64.PacSP
}
