package amd64

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fentry-dev/fentry/arch"
)

const (
	siteAddr = 0x401000
	mcount   = 0x402000
	tramp    = 0x403000
	other    = 0x404000
	slot     = 0x405ff8
)

// at returns a memory whose bytes at siteAddr are code, with others around them.
func at(t testing.TB, code string) arch.Bytes {
	b := append(bytes.Repeat([]byte{0x11}, 16), unhex(t, code)...)
	return arch.Bytes{Addr: siteAddr - 16, Data: append(b, bytes.Repeat([]byte{0x22}, 16)...)}
}

func TestFtrace(t *testing.T) {
	var f Ftrace
	site := func(n int) arch.Site { return arch.Site{Addr: siteAddr, Len: n, Name: "f"} }
	viaSlot := arch.Site{Addr: siteAddr, Len: 6, Slot: slot}
	type op func(arch.Memory) error
	nop := func(s arch.Site, addr uint64) op {
		return func(m arch.Memory) error { return arch.MakeNop(f, m, s, addr) }
	}
	call := func(s arch.Site, addr uint64) op {
		return func(m arch.Memory) error { return arch.MakeCall(f, m, s, addr) }
	}
	modify := func(s arch.Site, old, new uint64) op {
		return func(m arch.Memory) error { return arch.ModifyCall(f, m, s, old, new) }
	}
	fn := func(to uint64) op {
		return func(m arch.Memory) error { return arch.UpdateFtraceFunc(f, m, siteAddr, to) }
	}
	enable := func(m arch.Memory) error { return arch.EnableGraphCaller(f, m, siteAddr, tramp) }
	disable := func(m arch.Memory) error { return arch.DisableGraphCaller(f, m, siteAddr, tramp) }

	for _, tt := range []struct {
		name        string
		before      string
		do          op
		after       string // "": refused
		class       arch.Class
		expected    string // in the report
		wantsTarget uint64
	}{
		{"nop of call", "e8 fb 0f 00 00", nop(site(5), mcount), "0f 1f 44 00 00", 0, "", 0},
		{"nop of relaxed call", "67 e8 fa 0f 00 00", nop(site(6), mcount), "66 0f 1f 44 00 00", 0, "", 0},
		{"nop of call with nop behind", "e8 fb 0f 00 00 90", nop(site(6), mcount), "66 0f 1f 44 00 00", 0, "", 0},
		{"nop of call with nop before", "90 e8 fa 0f 00 00", nop(site(6), mcount), "66 0f 1f 44 00 00", 0, "", 0},
		{"nop of call through its slot", "ff 15 f2 4f 00 00", nop(viaSlot, mcount), "66 0f 1f 44 00 00", 0, "", 0},
		{"nop of call through another slot", "ff 15 f1 4f 00 00", nop(viaSlot, mcount), "", arch.Mismatch, "67 e8 fa 0f 00 00", mcount},
		{"nop of call through a slot not named", "ff 15 f2 4f 00 00", nop(site(6), mcount), "", arch.Mismatch, "67 e8 fa 0f 00 00", mcount},
		{"nop of call elsewhere", "e8 fb 2f 00 00", nop(site(5), mcount), "", arch.Mismatch, "e8 fb 0f 00 00", mcount},
		{"nop of nop", "0f 1f 44 00 00", nop(site(5), mcount), "", arch.Mismatch, "e8 fb 0f 00 00", mcount},
		{"nop of jump", "e9 fb 0f 00 00", nop(site(5), mcount), "", arch.Mismatch, "e8 fb 0f 00 00", mcount},
		{"nop of long call site", "e8 fb 0f 00 00 66 90", nop(site(7), mcount), "0f 1f 80 00 00 00 00", 0, "", 0},
		{"nop of large call", "49 ba 00 20 40 00 00 00 00 00 41 ff d2", nop(site(13), mcount), "66 66 66 66 2e 0f 1f 84 00 00 00 00 00", 0, "", 0},
		{"nop of large call elsewhere", "49 ba 00 30 40 00 00 00 00 00 41 ff d2", nop(site(13), mcount), "", arch.Mismatch, "e8 fb 0f 00 00 0f 1f 84 00 00 00 00 00", mcount},
		{"nop of call out of reach", "e8 fb 0f 00 00", nop(site(5), 1<<40), "", arch.Mismatch, "", 1 << 40},

		{"call from nop5", "0f 1f 44 00 00", call(site(5), tramp), "e8 fb 1f 00 00", 0, "", 0},
		{"call from gcc's nops", "90 90 90 90 90", call(site(5), tramp), "e8 fb 1f 00 00", 0, "", 0},
		{"call from clang's nop", "0f 1f 44 00 08", call(site(5), tramp), "e8 fb 1f 00 00", 0, "", 0},
		{"call from nop6", "66 0f 1f 44 00 00", call(site(6), tramp), "67 e8 fa 1f 00 00", 0, "", 0},
		{"call from 8 nops", "90 90 90 90 90 90 90 90", call(site(8), tramp), "e8 fb 1f 00 00 0f 1f 00", 0, "", 0},
		{"call from too few nops", "90 90 90 90 55", call(site(5), tramp), "", arch.Mismatch, "0f 1f 44 00 00", tramp},
		{"call from half a nop", "0f 1f 84 00 00", call(site(5), tramp), "", arch.Mismatch, "0f 1f 44 00 00", tramp},
		{"call from code", "55 48 89 e5 90", call(site(5), tramp), "", arch.Mismatch, "0f 1f 44 00 00", tramp},
		{"call from call", "e8 fb 1f 00 00", call(site(5), tramp), "", arch.Mismatch, "0f 1f 44 00 00", tramp},
		{"call out of reach", "0f 1f 44 00 00", call(site(5), 1<<40), "", arch.Unreachable, "", 1 << 40},
		{"call at a short site", "66 0f 1f 44 00 00", call(site(4), tramp), "", arch.Unreachable, "", tramp},
		{"call at a huge site", "66 0f 1f 44 00 00", call(site(1<<30), tramp), "", arch.Unreachable, "", tramp},

		{"modify", "e8 fb 1f 00 00", modify(site(5), tramp, other), "e8 fb 2f 00 00", 0, "", 0},
		{"modify relaxed", "67 e8 fa 0f 00 00", modify(site(6), mcount, tramp), "67 e8 fa 1f 00 00", 0, "", 0},
		{"modify the original", "ff 15 f2 4f 00 00", modify(viaSlot, mcount, tramp), "67 e8 fa 1f 00 00", 0, "", 0},
		{"modify another call", "e8 fb 2f 00 00", modify(site(5), tramp, mcount), "", arch.Mismatch, "e8 fb 1f 00 00", mcount},
		{"modify a nop", "0f 1f 44 00 00", modify(site(5), tramp, other), "", arch.Mismatch, "e8 fb 1f 00 00", other},

		{"update func", "e8 11 22 33 44", fn(other), "e8 fb 2f 00 00", 0, "", 0},
		{"update func that is no call", "e9 11 22 33 44", fn(other), "", arch.Mismatch, "e8", other},
		{"graph on", "0f 1f 44 00 00", enable, "e9 fb 1f 00 00", 0, "", 0},
		{"graph on twice", "e9 fb 1f 00 00", enable, "", arch.Mismatch, "0f 1f 44 00 00", tramp},
		{"graph off", "e9 fb 1f 00 00", disable, "0f 1f 44 00 00", 0, "", 0},
		{"graph off elsewhere", "e9 fb 2f 00 00", disable, "", arch.Mismatch, "e9 fb 1f 00 00", tramp},
	} {
		mem := at(t, tt.before)
		before := bytes.Clone(mem.Data)
		err := tt.do(mem)
		if tt.after != "" {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			} else if want := at(t, tt.after); !bytes.Equal(mem.Data, want.Data) {
				t.Errorf("%s: % x, want % x", tt.name, mem.Data, want.Data)
			}
			continue
		}
		var bug *arch.Bug
		if !errors.As(err, &bug) {
			t.Errorf("%s: %v, want a Bug", tt.name, err)
			continue
		}
		if bug.Class != tt.class || !bytes.Equal(bug.Expected, unhex(t, tt.expected)) || bug.Target != tt.wantsTarget || bug.Site.Addr != siteAddr {
			t.Errorf("%s: %v, want class %v, expected %s, target %#x", tt.name, err, tt.class, tt.expected, tt.wantsTarget)
		}
		if bug.Class == arch.Mismatch && !bytes.Equal(bug.Actual, unhex(t, tt.before)) {
			t.Errorf("%s: actual % x in the report", tt.name, bug.Actual)
		}
		if !bytes.Equal(mem.Data, before) {
			t.Errorf("%s: refused, but memory is now % x", tt.name, mem.Data)
		}
	}
}

func TestCallAdjust(t *testing.T) {
	for _, tt := range []struct {
		code string
		off  int // of the word from siteAddr
		want int // of the site from siteAddr
		text string
	}{
		{"e8 00 00 00 00", 0, 0, "call"},
		{"0f 1f 44 00 00", 0, 0, "nop"},
		{"90 90 90 90 90", 0, 0, "patchable"},
		{"f3 0f 1e fa e8 00 00 00 00", 0, 4, "landing pad"},
		{"f3 0f 1e fa e8 00 00 00 00", 4, 4, "behind a landing pad"},
		{"f3 0f 1e fb e8 00 00 00 00", 0, 0, "32-bit landing pad"},
		{"ff 15 00 00 00 00", 1, 0, "recordmcount of a PIC object"},
		{"ff 15 00 00 00 00", 0, 0, "the compiler's own table of it"},
		{"90 15 00 00 00 00", 1, 1, "adc"},
		{"49 ba 00 00 00 00 00 00 00 00 41 ff d2", 1, 0, "recordmcount, large model"},
		{"49 ba 00 00 00 00 00 00 00 00 41 ff d3", 1, 1, "something else"},
		{"f3", 0, 0, "cut off"},
	} {
		mem := arch.Bytes{Addr: siteAddr, Data: unhex(t, tt.code)}
		got, err := Ftrace{}.CallAdjust(mem, siteAddr+uint64(tt.off))
		if err != nil || got != siteAddr+uint64(tt.want) {
			t.Errorf("%s: %#x, %v; want %#x", tt.text, got, err, siteAddr+tt.want)
		}
	}
	_, err := Ftrace{}.CallAdjust(arch.Bytes{Addr: siteAddr}, siteAddr)
	var bug *arch.Bug
	if !errors.As(err, &bug) || bug.Class != arch.Fault {
		t.Errorf("unreadable word: %v", err)
	}
	// 15 at the very start of what can be read.
	if got, err := (Ftrace{}).CallAdjust(arch.Bytes{Addr: siteAddr, Data: []byte{0x15}}, siteAddr); err != nil || got != siteAddr {
		t.Errorf("15 with nothing before it: %#x, %v", got, err)
	}
}
