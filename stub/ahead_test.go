package stub

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
)

// TestGoAhead: a signal handler that calls traced functions comes behind every instruction with which a thread goes on
// in its next chunk without a system call, fills none, one or many chunks there, on its own stack, leaves by a jump, or
// forks. Nothing is lost, nothing is recorded twice, and numbers go by places.
func TestGoAhead(t *testing.T) {
	for _, c := range []struct {
		calls int
		how   string
		loose bool // a call that is interrupted need not be counted as the program does
	}{
		{0, "return", false}, {1, "return", false}, {3, "stack", false}, {5000, "return", false},
		{30000, "return", false}, {3, "jump", true}, {3, "fork", true}, {5000, "fork", true},
	} {
		t.Run(fmt.Sprint(c.calls, c.how), func(t *testing.T) {
			t.Parallel()
			p := newPool(t, 128, 0)
			f := buildFixture(t, "ahead.c", buildOptions{on: onAMD64, tracer: "order", config: Config{Flags: FlagNoClock, Session: p.path()}})
			at, size := symbolIn(t, f, "go_ahead")
			later, _ := symbolIn(t, f, "later")
			out, errs := p.runWith(t, f, func() {
				p.word(format.HHeartbeat).Add(1)
				p.endDead(t)
				if p.drain(2) == 0 {
					time.Sleep(100 * time.Microsecond)
				}
			}, fmt.Sprintf("%x", at), fmt.Sprint(size), fmt.Sprint(c.calls), c.how, fmt.Sprintf("%x", later))
			p.drain(2)
			p.drain(1)
			if errs != "" {
				t.Error(errs)
			}
			t.Log(out)
			var leaf, inner, handlers, behind int
			if _, err := fmt.Sscanf(out, "leaf %d\ninner %d\nhandlers: %d, behind %d instructions\n", &leaf, &inner, &handlers, &behind); err != nil {
				t.Fatalf("%q: %v", out, err)
			}
			n, lost := p.calls(f)
			least, most := leaf, leaf
			if c.loose {
				least, most = leaf-handlers, leaf+handlers
			}
			if n["leaf"] < least || n["leaf"] > most || n["inner"] != inner || lost != 0 {
				t.Errorf("%d calls of leaf, %d of inner, %d lost", n["leaf"], n["inner"], lost)
			}
			if !c.loose {
				ev := p.events(t, f)
				if ev.open != 0 || ev.strays != 0 || ev.holes != 0 {
					t.Errorf("%d calls left open, %d exits without entry, %d slots not written", ev.open, ev.strays, ev.holes)
				}
			}
			if behind < 45 {
				t.Errorf("the handler came behind %d instructions", behind)
			}
			p.checkNumbers(t)
		})
	}
}

// endDead makes chunks of processes that have ended full.
func (p *pool) endDead(t *testing.T) {
	t.Helper()
	const owned, full = 1, 2
	for i := range p.n {
		b := p.mem[4096+i*chunkSize:][:chunkSize]
		state, magic := p.word(format.StatesOff+4*i), (*atomic.Uint32)(unsafe.Pointer(&b[format.CMagic]))
		if state.Load() == owned && magic.Load() != 0 {
			pid := binary.LittleEndian.Uint32(b[format.CPID:])
			if err := unix.Kill(int(pid), 0); err == unix.ESRCH {
				state.CompareAndSwap(owned, full)
			}
		}
	}
}

// calls counts the entries by function in what was drained, and what was lost, also where they make no sense together.
func (p *pool) calls(f *fixture) (n map[string]int, lost uint64) {
	le := binary.LittleEndian
	n = map[string]int{}
	for _, c := range p.chunks {
		if le.Uint16(c[format.CKind:]) != format.KindEvents {
			continue
		}
		lost = max(lost, le.Uint64(c[format.CLost:]))
		for w := format.Contents(c[format.ChunkHeader:]); len(w) > 0; w = w[8:] {
			id := uint32(le.Uint64(w) >> 32)
			if r, ok := format.ParseRecord(id); ok {
				w = w[8*r.Words:]
			} else if id != 0 && int(id) <= len(f.sites) {
				n[f.sites[id-1]]++
			}
		}
	}
	return n, lost
}

// symbolIn returns where a symbol of a fixture is.
func symbolIn(t *testing.T, f *fixture, name string) (at, size uint64) {
	t.Helper()
	e, err := elf.Open(f.path)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	syms, err := e.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(syms, func(s elf.Symbol) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no symbol %s", name)
	}
	return syms[i].Value, syms[i].Size
}

// checkNumbers tells whether the number of each event without a clock is that of its place in its chunk, and each task's
// chunks follow each other.
func (p *pool) checkNumbers(t *testing.T) {
	t.Helper()
	le := binary.LittleEndian
	type last struct {
		number uint32
		end    uint64
	}
	ends := map[uint64]last{} // by task
	chunks := slices.Clone(p.chunks)
	slices.SortFunc(chunks, func(a, b []byte) int {
		return int(le.Uint32(a[format.CNumber:])) - int(le.Uint32(b[format.CNumber:]))
	})
	for _, c := range chunks {
		if le.Uint16(c[format.CKind:]) != format.KindEvents {
			continue
		}
		if len(format.Contents(c[format.ChunkHeader:])) == 0 && le.Uint32(c[format.CNumber:]) != 0 {
			continue // it was prepared, and not needed
		}
		first, number, key := le.Uint64(c[format.CCounter:]), le.Uint32(c[format.CNumber:]), le.Uint64(c[format.CKey:])
		if before, ok := ends[key]; ok && (number != before.number+1 || first < before.end) {
			t.Errorf("chunk %d begins at %d behind chunk %d, which ends at %d", number, first, before.number, before.end)
		}
		ends[key] = last{number, first + uint64(len(c))}
		for at := format.ChunkHeader; at+8 <= len(c); at += 8 {
			w := le.Uint64(c[at:])
			r, record := format.ParseRecord(uint32(w >> 32))
			if w != 0 && !record && uint32(w) != uint32(first)+uint32(at) {
				t.Fatalf("chunk %d, which begins at %d, has number %#x at %d", number, first, uint32(w), at)
			}
			if record {
				at += 8 * r.Words
			}
		}
	}
}
