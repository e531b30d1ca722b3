package record

import (
	"fmt"
	"math"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/bigslice"
)

// Sites that are kept.
//
// Finding the sites of a program decodes all of its code, and mostly gives what it gave the last time. So the result can
// be kept, by somebody who knows that neither the image nor the options nor this package have changed since; the bytes
// have no version of their own for that reason. They end with a checksum, because a system that crashes can leave
// anything in a file, and a site that is wrong would have a program run into the middle of an instruction. What is in
// the image already, the bytes at the sites, is taken from there.
//
// Numbers are varints, addresses distances from the one before, so a site takes about 20 bytes and its name.

// FoundKey returns a text that differs between options with which [Find] finds different sites in an image, but for Symbols.
// Where compilers have prepared functions of the image ([Prepared]) what is found depends on prepared as well; "": it does not.
func (o *Options) FoundKey() (key, prepared string) {
	rest := *o
	rest.Symbols, rest.Named, rest.Syscalls, rest.Execs, rest.JumpsAway = nil, nil, false, false, false
	rest.LibraryCalls = o.LibraryCalls || o.Named.namesCalls()
	if o.Plain == PlainAuto && o.Named.hasNames() {
		prepared = "names " + o.Named.Key()
	}
	if o.JumpsAway {
		prepared += " jumps"
	}
	return fmt.Sprintf("%+v", rest), prepared
}

// Prepared reports whether one of an image's sites is a compiler's, and can be traced.
func Prepared(sites []Site) bool {
	return slices.ContainsFunc(sites, func(s Site) bool {
		switch s.Kind {
		case KindPlain, KindLibCall, KindOCaml:
			return false
		}
		return s.Traceable()
	})
}

// leastKept is fewer bytes than any site takes.
const leastKept = 15

// AppendSites appends sites of an image in the form that [ReadSites] reads. Sites of Go programs are not kept: they
// are found more quickly than they are read.
func AppendSites(b []byte, sites []Site) []byte {
	w := keptWriter{b: b, start: len(b), words: map[string]int{}}
	w.number(uint64(len(sites)))
	last := uint64(0)
	for i := range sites {
		s := &sites[i]
		w.signed(s.Func - last)
		last = s.Func
		w.number(s.Size)
		w.text(s.Name)
		w.number(uint64(len(s.Aliases)))
		for _, a := range s.Aliases {
			w.text(a)
		}
		w.signed(s.Addr - s.Func)
		w.number(uint64(s.Len))
		w.number(s.Via)
		w.number(uint64(s.Moved))
		w.b = append(w.b, byte(s.Kind), byte(s.Ret))
		w.number(uint64(s.Frame))
		w.number(s.Slot)
		w.number(uint64(len(s.Calls)))
		at := uint64(0)
		for _, c := range s.Calls {
			w.signed(c - at)
			at = c
		}
		w.flags(s.Catches, s.Own, s.Untabled, s.Swaps, s.Moves != nil, s.JumpsAway, s.BesideSyscall)
		if s.Moves != nil {
			w.moves(s.Moves, s.Func)
		}
		w.word(s.Source)
		w.word(string(s.Reason))
	}
	return w.end()
}

// ReadSites returns the sites of an image that [AppendSites] has appended to nothing. It returns an error for other
// bytes, and for those of an image that does not have the sites' addresses; it does not find out whether they were made
// for this image.
func ReadSites(f *elfio.File, b []byte) ([]Site, error) {
	r, err := newKeptReader(b)
	if err != nil {
		return nil, err
	}
	count := r.count(leastKept)
	sites := bigslice.Make[Site](0, count)
	last := uint64(0)
	for range count {
		s := Site{Func: last + uint64(r.signed())}
		last = s.Func
		s.Size, s.Name = r.number(math.MaxUint64), r.text()
		if k := r.count(1); k > 0 {
			s.Aliases = make([]string, k)
			for i := range s.Aliases {
				s.Aliases[i] = r.text()
			}
		}
		s.Addr = s.Func + uint64(r.signed())
		s.Len = int(r.number(math.MaxInt32))
		s.Via = r.number(math.MaxUint64)
		s.Moved = int(r.number(math.MaxInt32))
		s.Kind, s.Ret = Kind(r.byte()), RetLoc(r.byte())
		s.Frame = uint32(r.number(math.MaxUint32))
		s.Slot = r.number(math.MaxUint64)
		if k := r.count(1); k > 0 {
			s.Calls = make([]uint64, k)
			at := uint64(0)
			for i := range s.Calls {
				at += uint64(r.signed())
				s.Calls[i] = at
			}
		}
		moved := false
		r.flags(&s.Catches, &s.Own, &s.Untabled, &s.Swaps, &moved, &s.JumpsAway, &s.BesideSyscall)
		if moved {
			s.Moves = r.moves(f, s.Func)
		}
		s.Source, s.Reason = r.word(), Reason(r.word())
		if r.bad {
			return nil, errKept
		}
		if s.Len > 0 {
			if s.Bytes, err = f.Bytes(s.Addr, s.Len); err != nil {
				return nil, err
			}
		}
		sites = append(sites, s)
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return sites, nil
}
