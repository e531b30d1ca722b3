//go:build linux

package tracee

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/fentry-dev/fentry/internal/format"
)

// switchedSlowly says again, simply, what becomes of a switch.
func switchedSlowly(b byte, armed uint32, on, costly bool) byte {
	b &^= format.SwitchOn | format.SwitchFiltered
	if !on {
		b |= format.SwitchFiltered
	} else if costly {
		b &^= format.SwitchCostly
	}
	if b&offBits == 0 && (armed == format.ArmedOn || armed == format.ArmedPaused && b&format.SwitchActs != 0) {
		b |= format.SwitchOn
	}
	return b
}

// All of a switch's bits, in every state of tracing, become what they do one by one, wherever they are, and all that changes
// is written.
func TestFlip(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 2000 {
		b, alike := make([]byte, rnd.IntN(300)), 0
		if round%5 == 0 {
			b = make([]byte, rnd.IntN(20*switchStretch))
		}
		for i := range b {
			if alike--; alike > 0 {
				b[i] = b[i-1]
				continue
			}
			b[i] = byte(rnd.IntN(32))
			if round%10 == 0 {
				alike = rnd.IntN(10 * switchStretch)
			}
			if round%3 == 0 {
				b[i] &= format.SwitchOn | format.SwitchActs
			}
		}
		armed := []uint32{format.ArmedOff, format.ArmedOn, format.ArmedPaused}[rnd.IntN(3)]
		f := flip{armed: armed, clear: format.SwitchFiltered}
		costly := rnd.IntN(2) == 0
		if costly {
			f.clear |= format.SwitchCostly
		}
		chosen := func(uint32) bool { return true }
		if rnd.IntN(2) == 0 {
			chosen = func(id uint32) bool { return id%3 == 0 }
			f.on = chosen
		}
		want := make([]byte, len(b))
		for i := range b {
			want[i] = switchedSlowly(b[i], armed, chosen(uint32(i)+7), costly)
		}
		memory := bytes.Clone(b)
		if err := f.all(b, 7, func(begin, end int) error { copy(memory[begin:end], b[begin:end]); return nil }); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, want) || !bytes.Equal(memory, want) {
			t.Fatalf("armed %d, %+v:\n%x\n%x, want\n%x", armed, f, b, memory, want)
		}
	}
}

// The switches of a large image are all switched, in several steps, and nothing beside them, wherever in a page they begin.
func TestTurnLarge(t *testing.T) {
	const n, first = 2*switchStep + 5, 24
	all, r, im := switchable(t, first+n+first)
	im.Sites, im.switches = n, im.switches+first
	switches := all[first:][:n]
	for i := range switches {
		switches[i] = byte(i/1000) & (format.SwitchOn | format.SwitchActs | format.SwitchCostly)
	}
	was := bytes.Clone(switches)
	if err := r.turn(&turn{im: im, f: flip{armed: format.ArmedPaused}}, r.put); err != nil {
		t.Fatal(err)
	}
	for i, b := range switches {
		if want := switchedSlowly(was[i], format.ArmedPaused, true, false); b != want {
			t.Fatalf("switch %d: %#x, want %#x", i, b, want)
		}
	}
	if beside := append(bytes.Clone(all[:first]), all[first+n:]...); !bytes.Equal(beside, bytes.Repeat([]byte{format.SwitchOn}, 2*first)) {
		t.Errorf("what is beside the switches is %x", beside)
	}
	im.switches = 8
	if err := r.turn(&turn{im: im, f: flip{armed: format.ArmedOn}}, r.put); err == nil {
		t.Error("switched where nothing is")
	}
}

// switchable is an image of so many functions in this process, as it is one in another.
func switchable(t testing.TB, n int) ([]byte, *Runtime, *RuntimeImage) {
	t.Helper()
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	switches, words := bytes.Repeat([]byte{format.SwitchOn}, n), make([]byte, wSyscalls+4)
	t.Cleanup(func() {
		mem.Close()
		runtime.KeepAlive(words)
		runtime.KeepAlive(switches)
	})
	return switches, newRuntime(&Process{pid: os.Getpid(), mem: mem}, nil), &RuntimeImage{Sites: n,
		switches: uint64(uintptr(unsafe.Pointer(&switches[0]))), words: uint64(uintptr(unsafe.Pointer(&words[0])))}
}

// BenchmarkSwitch switches all functions of an image off and on, in the memory of this process, as in that of another.
func BenchmarkSwitch(b *testing.B) {
	for _, n := range []int{1000, 200_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			switches, r, im := switchable(b, n+16)
			im.Sites, im.switches = n, im.switches+16 // as in a file, not where pages begin
			i := 0
			for b.Loop() {
				if err := r.turn(&turn{im: im, f: flip{armed: []uint32{format.ArmedPaused, format.ArmedOn}[i%2]}}, r.put); err != nil {
					b.Fatal(err)
				}
				i++
			}
			if last := switches[16+n-1]; last&format.SwitchOn != 0 != (i%2 == 0) {
				b.Errorf("the last switch is %#x after %d", last, i)
			}
		})
	}
}
