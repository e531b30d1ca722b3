package arch_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/internal/parallel"
)

// traced is a memory that notes what is read and written of it, as address+length.
type traced struct {
	arch.Bytes
	log    []string
	unread [2]uint64 // what cannot be read
	fail   uint64    // a write that touches this address fails, having written what is before it; 0: none does
	dead   bool      // after that nothing can be written
}

func (m *traced) ReadAt(p []byte, addr uint64) error {
	m.log = append(m.log, fmt.Sprintf("r%d+%d", addr, len(p)))
	if addr < m.unread[1] && m.unread[0] < addr+uint64(len(p)) {
		return errors.New("no page")
	}
	return m.Bytes.ReadAt(p, addr)
}

func (m *traced) WriteAt(p []byte, addr uint64) error {
	m.log = append(m.log, fmt.Sprintf("w%d+%d", addr, len(p)))
	if m.fail != 0 && (addr <= m.fail && m.fail < addr+uint64(len(p)) || m.fail == ^uint64(0)) {
		if m.fail != ^uint64(0) {
			m.Bytes.WriteAt(p[:m.fail-addr], addr)
		}
		if m.dead {
			m.fail = ^uint64(0)
		}
		return errors.New("read-only page")
	}
	return m.Bytes.WriteAt(p, addr)
}

// letters is a memory of n letters, from address 1000.
func letters(n int) *traced {
	m := &traced{Bytes: arch.Bytes{Addr: 1000}}
	for i := range n {
		m.Data = append(m.Data, byte('a'+i%26))
	}
	return m
}

// upper makes edits of length 2 at these addresses of m.
func upper(m *traced, addrs ...uint64) (edits []arch.Edit) {
	for _, a := range addrs {
		old := bytes.Clone(m.Data[a-1000:][:2])
		edits = append(edits, arch.Edit{Addr: a, Old: old, New: bytes.ToUpper(old), Func: fmt.Sprintf("f%d", a)})
	}
	return edits
}

func TestApply(t *testing.T) {
	for _, tt := range []struct {
		gap  uint64
		want string
	}{
		{0, "r1000+2 r1004+2 r1020+2 w1000+2 w1004+2 w1020+2"},
		{2, "r1000+2 r1004+2 r1020+2 w1000+2 w1004+2 w1020+2"},
		{3, "r1000+6 r1020+2 r1000+6 w1000+6 w1020+2"},
		{15, "r1000+22 r1000+22 w1000+22"},
	} {
		m := letters(26)
		err := arch.Apply(m, tt.gap, upper(m, 1000, 1004, 1020))
		if got := strings.Join(m.log, " "); got != tt.want || err != nil {
			t.Errorf("gap %d: %s, %v; want %s", tt.gap, got, err, tt.want)
		}
		if got := string(m.Data); got != "ABcdEFghijklmnopqrstUVwxyz" {
			t.Errorf("gap %d: %s", tt.gap, got)
		}
	}
	// What is read and written at a time is bounded.
	m := letters(3 << 20)
	if err := arch.Apply(m, 1<<30, upper(m, 1000, 1000+1<<20, 1000+1<<21)); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(m.log, " "), "r1000+2 r1049576+2 r2098152+2 w1000+2 w1049576+2 w2098152+2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Nothing is written before all has been compared, and the error names the first edit that is wrong.
func TestApplyComparesAll(t *testing.T) {
	for _, gap := range []uint64{0, 3, 100} {
		m := letters(26)
		edits := upper(m, 1000, 1004, 1020)
		m.Data[21] = '!'
		before := bytes.Clone(m.Data)
		err := arch.Apply(m, gap, edits)
		var bug *arch.Bug
		if !errors.As(err, &bug) || bug.Class != arch.Mismatch || bug.Site.Name != "f1020" ||
			string(bug.Actual) != "u!" || string(bug.Expected) != "uv" {
			t.Errorf("gap %d: %v", gap, err)
		}
		if want := "0x3fc (f1020): rewriting code: EINVAL: actual 75:21, expected 75:76"; err == nil || err.Error() != want {
			t.Errorf("gap %d: %v, want %s", gap, err, want)
		}
		if !bytes.Equal(m.Data, before) || slices.ContainsFunc(m.log, func(s string) bool { return s[0] == 'w' }) {
			t.Errorf("gap %d: written: %v", gap, m.log)
		}
		m = letters(26)
		edits = upper(m, 1000, 1004, 1020)
		m.unread = [2]uint64{1005, 1006}
		if err := arch.Apply(m, gap, edits); !errors.As(err, &bug) || bug.Class != arch.Fault || bug.Site.Name != "f1004" {
			t.Errorf("gap %d: %v", gap, err)
		}
	}
}

// What lies between edits need not be readable.
func TestApplyAroundHole(t *testing.T) {
	m := letters(26)
	m.unread = [2]uint64{1010, 1011}
	if err := arch.Apply(m, 100, upper(m, 1000, 1004, 1020)); err != nil {
		t.Fatal(err)
	}
	if got := string(m.Data); got != "ABcdEFghijklmnopqrstUVwxyz" {
		t.Error(got)
	}
}

// A write that fails, even in the middle, takes back what has been written.
func TestWriteRestores(t *testing.T) {
	for _, gap := range []uint64{0, 3, 100} {
		for _, fail := range []uint64{1000, 1004, 1005, 1020, 1021} {
			m := letters(26)
			before := bytes.Clone(m.Data)
			edits := upper(m, 1000, 1004, 1020)
			m.fail = fail
			err := arch.Apply(m, gap, edits)
			var bug *arch.Bug
			if !errors.As(err, &bug) || bug.Class != arch.WriteFault {
				t.Fatalf("gap %d: %v", gap, err)
			}
			m.fail = 0
			if fail%2 == 0 && !bytes.Equal(m.Data, before) {
				t.Errorf("gap %d, failure at %d: %s", gap, fail, m.Data)
			}
		}
		m := letters(26)
		edits := upper(m, 1000, 1004, 1020)
		m.fail, m.dead = 1020, true
		err := arch.Apply(m, gap, edits)
		if n := strings.Count(fmt.Sprint(err), "not restored"); n != 2 {
			t.Errorf("gap %d: %v", gap, err)
		}
	}
}

// What is compared is read once, and an edit that is wrong, or cannot be written, takes back those before it, and nothing else.
func TestReplace(t *testing.T) {
	for _, tt := range []struct {
		gap  uint64
		want string
	}{
		{0, "r1000+2 w1000+2 r1004+2 w1004+2 r1020+2 w1020+2"},
		{3, "r1000+6 w1000+6 r1020+2 w1020+2"},
		{15, "r1000+22 w1000+22"},
	} {
		m := letters(26)
		err := arch.Replace(m, tt.gap, upper(m, 1000, 1004, 1020), nil)
		if got := strings.Join(m.log, " "); got != tt.want || err != nil || string(m.Data) != "ABcdEFghijklmnopqrstUVwxyz" {
			t.Errorf("gap %d: %s, %v: %s", tt.gap, got, err, m.Data)
		}
		for at := range uint64(3) {
			for _, hole := range []bool{false, true} {
				m := letters(26)
				edits := upper(m, 1000, 1004, 1020)
				wrong := edits[at].Addr + 1
				m.Data[wrong-1000] = '!'
				if hole {
					m.unread = [2]uint64{1003, 1004}
				}
				before := bytes.Clone(m.Data)
				err := arch.Replace(m, tt.gap, edits, nil)
				var bug *arch.Bug
				if !errors.As(err, &bug) || bug.Class != arch.Mismatch || bug.Site.Addr != edits[at].Addr || !bytes.Equal(m.Data, before) {
					t.Errorf("gap %d, %d is wrong, hole %t: %v: %s", tt.gap, wrong, hole, err, m.Data)
				}
				m.Data[wrong-1000] = byte('a' + (wrong-1000)%26)
				before, m.fail = bytes.Clone(m.Data), edits[at].Addr
				if err = arch.Replace(m, tt.gap, edits, nil); !errors.As(err, &bug) || bug.Class != arch.WriteFault || !bytes.Equal(m.Data, before) {
					t.Errorf("gap %d, %d cannot be written, hole %t: %v: %s", tt.gap, wrong, hole, err, m.Data)
				}
			}
		}
	}
}

// guarded is a memory for several at a time.
type guarded struct {
	mu sync.Mutex
	*traced
}

func (m *guarded) ReadAt(p []byte, addr uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.traced.ReadAt(p, addr)
}

func (m *guarded) WriteAt(p []byte, addr uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.traced.WriteAt(p, addr)
}

// What is replaced in several places at once is all replaced or nothing of it, wherever that fails.
func TestReplaceAtOnce(t *testing.T) {
	const size, step = 2 << 20, 100
	var addrs []uint64
	for a := uint64(1000); a < 1000+size-2; a += step {
		addrs = append(addrs, a)
	}
	m := letters(size)
	before, edits := bytes.Clone(m.Data), upper(m, addrs...)
	err := arch.Replace(&guarded{traced: m}, 1000, edits, parallel.Do)
	want := bytes.Clone(before)
	for _, a := range addrs {
		copy(want[a-1000:], bytes.ToUpper(want[a-1000:][:2]))
	}
	if err != nil || !bytes.Equal(m.Data, want) {
		t.Fatalf("%v; as it should be: %t", err, bytes.Equal(m.Data, want))
	}
	if pieces := len(m.log) / 2; pieces < 4 {
		t.Errorf("%d pieces", pieces)
	}
	for _, at := range []int{0, 1, len(addrs) / 3, len(addrs) - 1} {
		for _, class := range []arch.Class{arch.Mismatch, arch.WriteFault} {
			copy(m.Data, before)
			m.log, m.fail = nil, 0
			if class == arch.Mismatch {
				m.Data[addrs[at]-1000] = '!'
			} else {
				m.fail = addrs[at]
			}
			was := bytes.Clone(m.Data)
			err := arch.Replace(&guarded{traced: m}, 1000, edits, parallel.Do)
			var bug *arch.Bug
			if !errors.As(err, &bug) || bug.Class != class || class == arch.Mismatch && bug.Site.Addr != addrs[at] {
				t.Errorf("%d: %v, want %v", at, err, class)
			}
			if !bytes.Equal(m.Data, was) {
				t.Errorf("%d, %v: something is changed", at, class)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	b := []byte{1, 2}
	for name, edits := range map[string][]arch.Edit{
		"empty":   {{Addr: 5}},
		"lengths": {{Addr: 5, Old: b, New: b[:1]}},
		"order":   {{Addr: 5, Old: b, New: b}, {Addr: 3, Old: b, New: b}},
		"overlap": {{Addr: 5, Old: b, New: b}, {Addr: 6, Old: b, New: b}},
		"end":     {{Addr: ^uint64(0), Old: b, New: b}},
	} {
		m := letters(1)
		for what, err := range map[string]error{
			"Check": arch.Check(edits), "Compare": arch.Compare(m, 4, arch.All(edits)), "Write": arch.Write(m, 0, edits),
		} {
			var bug *arch.Bug
			if name == "order" || name == "overlap" {
				if what == "Compare" {
					continue // reads the first one, which is not there
				}
			}
			if err == nil || errors.As(err, &bug) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
	}
	edits := []arch.Edit{{Addr: 7, Old: b, New: b}, {Addr: 5, Old: b, New: b}}
	if err := arch.Sort(edits); err != nil || edits[0].Addr != 5 {
		t.Errorf("%v, %v", edits, err)
	}
}

func TestMoved(t *testing.T) {
	m := letters(26)
	moved := arch.Moved{Memory: m, Bias: 1000}
	edits := []arch.Edit{{Addr: 3, Old: []byte("de"), New: []byte("DE")}}
	err := arch.Apply(moved, 0, edits)
	if err != nil || string(m.Data[:6]) != "abcDEf" {
		t.Errorf("%s, %v", m.Data, err)
	}
	if err = arch.Apply(moved, 0, edits); err == nil || !strings.HasPrefix(err.Error(), "0x3: ") {
		t.Errorf("%v, want the address before it was moved", err)
	}
}

func ExampleApply() {
	mem := arch.Bytes{Addr: 0x401000, Data: []byte("\x90\x90\xc3")}
	edits := []arch.Edit{{Addr: 0x401000, Old: []byte{0x90, 0x90}, New: []byte{0xeb, 0x10}, Func: "main"}}
	fmt.Println(arch.Apply(mem, 0, edits))
	fmt.Printf("% x\n", mem.Data)
	fmt.Println(arch.Apply(mem, 0, edits))
	// Output:
	// <nil>
	// eb 10 c3
	// 0x401000 (main): rewriting code: EINVAL: actual eb:10, expected 90:90
}
