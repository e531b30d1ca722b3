package code

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// plainLastSuspect is lastSuspect a byte at a time.
func plainLastSuspect(b []byte, addr uint64, place Place) (last int) {
	lo, hi := place.first(), place.Hi
	n := hi - lo
	for _, part := range [2][2]uint64{{addr, place.Lo}, {hi, addr + uint64(len(b))}} {
		if part[1] <= part[0] {
			continue
		}
		p := b[part[0]-addr : part[1]-addr]
		at := part[0] - lo
		for k := 0; k+4 <= len(p); k++ {
			if at+uint64(k)+4+uint64(int64(int32(binary.LittleEndian.Uint32(p[k:])))) < n {
				last = max(last, int(part[0]-addr)+k+4)
			}
		}
		from, to := 1, len(p)
		if part[0] >= hi {
			to = min(to, 128+int(n))
		} else {
			from = max(from, len(p)-256)
		}
		for k := from; k < to; k++ {
			if at+uint64(k)+1+uint64(int64(int8(p[k]))) < n && isShortBranch(p[k-1]) {
				last = max(last, int(part[0]-addr)+k+1)
			}
		}
	}
	return last
}

func TestLastSuspect(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	check := func(b []byte, addr, lo, hi uint64) {
		t.Helper()
		place := Place{Lo: lo, Hi: hi}
		if r.IntN(4) > 0 {
			place = Place{Lo: lo - 1, Hi: hi, Entry: true}
		}
		if got, want := lastSuspect(b, addr, place), plainLastSuspect(b, addr, place); got != want {
			t.Fatalf("%d bytes at %#x, %+v: %d, want %d", len(b), addr, place, got, want)
		}
	}
	found := 0
	for i := range 20000 {
		size := 5 + r.IntN(400)
		if i%100 == 0 {
			size = r.IntN(300_000) + 5
		}
		lead := r.IntN(min(size-4, 300))
		if r.IntN(2) == 0 {
			lead = 0
		}
		site := 2 + r.IntN(min(size-lead-1, 20))
		if i%50 == 0 {
			site = 2 + r.IntN(size-lead-1)
		}
		addr := uint64(0x401000 + r.IntN(1<<20))
		if i%7 == 0 {
			addr = r.Uint64() >> r.IntN(64)
		}
		lo, hi := addr+uint64(lead)+1, addr+uint64(lead)+uint64(site)
		if hi < addr || addr+uint64(size) < addr {
			continue
		}
		b := make([]byte, size)
		switch i % 3 {
		case 0:
			for k := range b {
				b[k] = byte(r.Uint32())
			}
		case 1: // code with many small negative numbers
			for k := range b {
				b[k] = []byte{0xff, 0xff, 0xfe, 0, 0x48, 0xeb, 0x74, byte(r.Uint32())}[r.IntN(8)]
			}
		}
		check(b, addr, lo, hi)
		// Branches to the site and to just beside it.
		for range 3 {
			target := lo - 3 + uint64(r.IntN(site+6))
			if k := r.IntN(size); k+4 <= size {
				binary.LittleEndian.PutUint32(b[k:], uint32(target-addr-uint64(k)-4))
			}
			check(b, addr, lo, hi)
			if k := 1 + r.IntN(min(size-1, lead+site+140)); k < size {
				b[k-1], b[k] = []byte{0xeb, 0x75, 0xe2, 0x90}[r.IntN(4)], byte(target-addr-uint64(k)-1)
			}
			check(b, addr, lo, hi)
			if lastSuspect(b, addr, Place{Lo: lo - 1, Hi: hi, Entry: true}) > 0 {
				found++
			}
		}
	}
	// Every place around where the upper half of a displacement changes.
	b := make([]byte, 200_000)
	for _, boundary := range []int{1 << 16, 2 << 16, 3 << 16} {
		for k := boundary - 40; k < boundary+40; k++ {
			for target := uint64(0x1000); target < 0x1007; target++ {
				clear(b[boundary-50 : boundary+50])
				binary.LittleEndian.PutUint32(b[k:], uint32(target-0x1000-uint64(k)-4))
				check(b, 0x1000, 0x1001, 0x1005)
			}
		}
	}
	if found == 0 {
		t.Error("no branch into a site was made")
	}
}

func BenchmarkLastSuspect(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	p := make([]byte, 1<<20)
	for k := range p {
		p[k] = byte(r.Uint32())
	}
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		for k := 0; k+512 <= len(p); k += 512 {
			lastSuspect(p[k:k+512], 0x1000, Place{Lo: 0x1000, Hi: 0x1005, Entry: true})
		}
	}
}
