package trace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/names"
)

// TestStream has random programs run, cuts what they record where looks at a buffer could, and compares what a Stream
// makes of the looks with the whole.
func TestStream(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 11))
			dir := buildHeader(t, Header{Counter: 1000, CounterHz: 1e9, ChunkSize: minChunkSize}, func(w *Writer) {
				for i := range 1 + rng.IntN(3) {
					p := &program{
						k:   w.Task(TaskID{PID: 1, TID: 1 + i, Image: testImage, Comm: fmt.Sprintf("t%d", i)}),
						rng: rng, now: 1000 + rng.Uint64N(100), task: i, functions: 1 + rng.IntN(26), captures: seed%2 == 1,
					}
					for range 100 {
						p.run(rng.IntN(60))
						if rng.IntN(8) == 0 { // which the next chunk says
							p.k.id.Comm = fmt.Sprint("n", rng.IntN(4))
						}
					}
					p.finish()
				}
			})
			look := filepath.Join(t.TempDir(), "look")
			if err := os.Mkdir(look, 0o700); err != nil {
				t.Fatal(err)
			}
			if seed%2 == 1 {
				writeCaptures(t, dir, look)
			}
			var want, got streamEvents
			whole := open(t, dir)
			if err := whole.Walk(WalkOptions{}, want.add); err != nil {
				t.Fatal(err)
			}
			events, err := os.ReadFile(filepath.Join(dir, EventsFile))
			if err != nil {
				t.Fatal(err)
			}
			var s Stream
			part := &looks{events: events, rng: rng, had: map[uint32]int{}}
			for last := false; !last; {
				var b []byte
				b, last = part.next()
				if err := os.WriteFile(filepath.Join(look, EventsFile), b, 0o600); err != nil {
					t.Fatal(err)
				}
				tr, err := OpenWith(look, Options{HeaderClock: true})
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Walk(tr, StreamOptions{End: last}, got.add); err != nil {
					t.Fatal(err)
				}
				tr.Close()
			}
			if d := cmp.Diff(want.tasks, got.tasks); d != "" {
				t.Error(d)
			}
			if s.Seen != want.recorded {
				t.Errorf("%d entries and exits seen of %d", s.Seen, want.recorded)
			}
		})
	}
}

// writeCaptures writes symbol files that say that arguments and results of the first function are captured.
func writeCaptures(t *testing.T, dirs ...string) {
	t.Helper()
	tab := names.Table{Captures: map[uint32]string{1: captureText(t)}}
	for i := range 26 {
		tab.Funcs = append(tab.Funcs, names.Func{ID: uint32(i) + 1, Addr: 0x401000 + 16*uint64(i), Name: string(rune('a' + i))})
	}
	var b bytes.Buffer
	if err := names.Write(&b, &tab); err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, testImage.String()+SymExt), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// streamEvents are events by thread, without what cannot be known before the next event.
type streamEvents struct {
	tasks    map[int][]string
	recorded uint64
}

func (s *streamEvents) add(ev *Event) error {
	if s.tasks == nil {
		s.tasks = map[int][]string{}
	}
	at, dur, self := ev.Time, ev.Dur, ev.Self
	switch ev.Kind {
	case Entry:
		dur, self = 0, 0
	case Comm:
		at = 0 // it was before the next event
	}
	s.tasks[ev.Task.TID] = append(s.tasks[ev.Task.TID],
		fmt.Sprint(ev.Kind, at, ev.Func, ev.Depth, dur, self, ev.Flags&^(FlagLeaf|FlagTail), ev.Count, ev.Comm))
	if ev.Kind == Entry || ev.Kind == Exit {
		s.recorded++
	}
	return nil
}

// looks cuts an events file into what looks at a buffer find: each has more than the one before of the threads, and
// chunks are gone that these had as a whole.
type looks struct {
	events []byte
	rng    *rand.Rand
	had    map[uint32]int // by thread, bytes
}

func (l *looks) next() (look []byte, last bool) {
	at := int(format.HeaderSize)
	look, last = append(look, l.events[:at]...), true
	left := map[uint32]int{}
	for tid, had := range l.had {
		left[tid] = had
	}
	more := map[uint32]int{}
	for at < len(l.events) {
		chunk := l.events[at:]
		chunk = chunk[:binary.LittleEndian.Uint32(chunk[format.CSize:])]
		at += len(chunk)
		if binary.LittleEndian.Uint16(chunk[format.CKind:]) != format.KindEvents {
			look = append(look, chunk...)
			continue
		}
		tid := binary.LittleEndian.Uint32(chunk[format.CTID:])
		if _, ok := more[tid]; !ok {
			more[tid] = l.rng.IntN(3000)
		}
		old := min(left[tid], len(chunk))
		left[tid] -= old
		size := old
		for size < len(chunk) && more[tid] > 0 {
			n := format.ChunkHeader
			if size > 0 {
				n = 8
				if r, ok := format.ParseRecord(binary.LittleEndian.Uint32(chunk[size+4:])); ok {
					n += 8 * r.Words
				}
			}
			size, more[tid] = size+n, more[tid]-n
		}
		l.had[tid] += size - old
		last = last && size == len(chunk)
		if size == 0 || old == len(chunk) && left[tid] > 0 {
			continue
		}
		sealed := append([]byte(nil), chunk[:size]...)
		binary.LittleEndian.PutUint32(sealed[format.CSize:], uint32(size))
		look = append(look, sealed...)
	}
	return look, last
}
