package arm64

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
	plt      = 0x405000
	slot     = 0x415ff8
	island   = 0x406000
	far      = 0x2000_0000

	toMcount = 0x94000400 // bl
	toTramp  = 0x94000800
	toOther  = 0x94000c00
	movX0LR  = 0xaa1e03e0
)

// at returns a memory with words at siteAddr, one before it, a PLT stub and veneers.
func at(before uint32, words ...uint32) arch.Bytes {
	m := arch.Bytes{Addr: siteAddr - 4, Data: make([]byte, 0x6000)}
	put := func(addr uint64, words ...uint32) {
		if err := m.WriteAt(code(words...), addr); err != nil {
			panic(err)
		}
	}
	put(siteAddr-4, before)
	put(siteAddr, words...)
	put(plt, WordBtiC, 0x90000090, 0xf947fe11, 0x913fe210, 0xd61f0220) // adrp x16, slot; ldr x17; add; br x17
	put(plt+0x40, 0xd0ffffF0, 0x91000210, 0xd61f0200)                  // adrp x16, tramp; add; br x16
	put(plt+0x60, 0xb0ffffF0, 0x91000210, 0xd61f0200)                  // to mcount
	put(plt+0x80, 0x14000000)                                          // b .
	put(plt+0x90, WordBtiC, 0x17fff3db+0x400)                          // bti c; b tramp
	return m
}

func TestFtrace(t *testing.T) {
	site := arch.Site{Addr: siteAddr, Len: 4, Name: "f"}
	viaSlot := arch.Site{Addr: siteAddr, Len: 4, Name: "f", Slot: slot}
	type op func(Ftrace, arch.Memory) error
	nop := func(s arch.Site, addr uint64) op {
		return func(f Ftrace, m arch.Memory) error { return arch.MakeNop(f, m, s, addr) }
	}
	call := func(s arch.Site, addr uint64) op {
		return func(f Ftrace, m arch.Memory) error { return arch.MakeCall(f, m, s, addr) }
	}
	modify := func(old, new uint64) op {
		return func(f Ftrace, m arch.Memory) error { return arch.ModifyCall(f, m, site, old, new) }
	}
	fn := func(to uint64) op {
		return func(f Ftrace, m arch.Memory) error { return arch.UpdateFtraceFunc(f, m, siteAddr, to) }
	}
	enable := func(f Ftrace, m arch.Memory) error { return arch.EnableGraphCaller(f, m, siteAddr, tramp) }
	disable := func(f Ftrace, m arch.Memory) error { return arch.DisableGraphCaller(f, m, siteAddr, tramp) }
	initNop := func(f Ftrace, m arch.Memory) error {
		return arch.Do(f, m, InitChange(arch.Site{Addr: siteAddr + 4, Len: 4, Name: "f"}))
	}
	bl := func(to uint64) uint32 {
		b, err := AppendCall(nil, siteAddr, to)
		if err != nil {
			t.Fatal(err)
		}
		return word32(b)
	}

	for _, tt := range []struct {
		name     string
		before   []uint32 // the word before the site, and those from it
		do       op
		after    uint32 // 0: refused
		class    arch.Class
		expected uint32 // in the report
		off      uint64 // of the instruction that the report is about, from siteAddr
	}{
		{"nop of call", []uint32{movX0LR, toMcount}, nop(site, mcount), WordNop, 0, 0, 0},
		{"nop of call elsewhere", []uint32{movX0LR, toOther}, nop(site, mcount), 0, arch.Mismatch, toMcount, 0},
		{"nop of jump", []uint32{movX0LR, 0x14000400}, nop(site, mcount), 0, arch.Mismatch, toMcount, 0},
		{"nop of nop", []uint32{movX0LR, WordNop}, nop(site, mcount), 0, arch.Mismatch, toMcount, 0},
		{"nop of call through its slot", []uint32{movX0LR, bl(plt)}, nop(viaSlot, mcount), WordNop, 0, 0, 0},
		{"nop of call behind the stub's landing pad", []uint32{movX0LR, bl(plt + 4)}, nop(viaSlot, mcount), WordNop, 0, 0, 0},
		{"nop of call through a slot not named", []uint32{movX0LR, bl(plt)}, nop(site, mcount), 0, arch.Mismatch, toMcount, 0},
		{"nop of call through another slot", []uint32{movX0LR, bl(plt)}, nop(arch.Site{Addr: siteAddr, Len: 4, Slot: slot - 8}, mcount), 0, arch.Mismatch, toMcount, 0},
		{"nop of call through a linker's veneer", []uint32{movX0LR, bl(plt + 0x60)}, nop(site, mcount), WordNop, 0, 0, 0},
		{"nop of call through another veneer", []uint32{movX0LR, bl(plt + 0x40)}, nop(site, mcount), 0, arch.Mismatch, toMcount, 0},
		{"nop of call into a loop", []uint32{movX0LR, bl(plt + 0x80)}, nop(site, mcount), 0, arch.Mismatch, toMcount, 0},
		{"nop of call to nowhere", []uint32{movX0LR, bl(0x8000000)}, nop(site, mcount), 0, arch.Mismatch, toMcount, 0},
		{"nop of call out of reach", []uint32{movX0LR, toMcount}, nop(site, 1<<40), 0, arch.Mismatch, 0, 0},

		{"init", []uint32{0, WordNop, WordNop}, initNop, WordMovX9LR, 0, 0, 0},
		{"init twice", []uint32{0, WordMovX9LR, WordNop}, initNop, 0, arch.Mismatch, WordNop, 0},
		{"init of one nop", []uint32{0, WordNop, movX0LR}, initNop, 0, arch.Mismatch, WordNop, 4},
		{"init of an enabled site", []uint32{0, WordNop, toTramp}, initNop, 0, arch.Mismatch, WordNop, 4},

		{"call", []uint32{WordMovX9LR, WordNop}, call(site, tramp), toTramp, 0, 0, 0},
		{"call at a -pg site", []uint32{movX0LR, WordNop}, call(site, tramp), toTramp, 0, 0, 0},
		{"call before init", []uint32{WordNop, WordNop}, call(site, tramp), 0, arch.Mismatch, WordMovX9LR, ^uint64(3)},
		{"call from call", []uint32{WordMovX9LR, toTramp}, call(site, tramp), 0, arch.Mismatch, WordNop, 0},
		{"call from another hint", []uint32{WordMovX9LR, 0xd503203f}, call(site, tramp), 0, arch.Mismatch, WordNop, 0},
		{"call out of reach", []uint32{WordMovX9LR, WordNop}, call(site, 1<<40), 0, arch.Unreachable, 0, 0},
		{"call by a veneer", []uint32{WordMovX9LR, WordNop}, call(site, far), bl(island), 0, 0, 0},
		{"call of a long site", []uint32{WordMovX9LR, WordNop}, call(arch.Site{Addr: siteAddr, Len: 8}, tramp), 0, arch.Unreachable, 0, 0},
		{"call to an odd address", []uint32{WordMovX9LR, WordNop}, call(site, tramp+2), 0, arch.Unreachable, 0, 0},

		{"modify", []uint32{WordMovX9LR, toTramp}, modify(tramp, other), toOther, 0, 0, 0},
		{"modify to a veneer", []uint32{WordMovX9LR, toTramp}, modify(tramp, far), bl(island), 0, 0, 0},
		{"modify another call", []uint32{WordMovX9LR, toOther}, modify(tramp, mcount), 0, arch.Mismatch, toTramp, 0},
		{"modify a nop", []uint32{WordMovX9LR, WordNop}, modify(tramp, other), 0, arch.Mismatch, toTramp, 0},

		{"update func", []uint32{0, bl(siteAddr - 400)}, fn(other), toOther, 0, 0, 0},
		{"update func that is no call", []uint32{0, 0x14000400}, fn(other), 0, arch.Mismatch, 0, 0},
		{"graph on", []uint32{0, WordNop}, enable, 0x14000800, 0, 0, 0},
		{"graph on twice", []uint32{0, 0x14000800}, enable, 0, arch.Mismatch, WordNop, 0},
		{"graph off", []uint32{0, 0x14000800}, disable, WordNop, 0, 0, 0},
		{"graph off elsewhere", []uint32{0, 0x14000c00}, disable, 0, arch.Mismatch, 0x14000800, 0},
		{"graph off of call", []uint32{0, toTramp}, disable, 0, arch.Mismatch, 0x14000800, 0},
	} {
		f := Ftrace{Veneers: &Veneers{Addr: island, Size: 0x100}}
		mem := at(tt.before[0], tt.before[1:]...)
		before := bytes.Clone(mem.Data)
		err := tt.do(f, mem)
		if tt.after != 0 {
			copy(before[4:], code(tt.after))
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			} else if !bytes.Equal(mem.Data, before) {
				t.Errorf("%s: %08x, want %08x, or another word changed", tt.name, word32(mem.Data[4:]), tt.after)
			}
			continue
		}
		var bug *arch.Bug
		if !errors.As(err, &bug) {
			t.Errorf("%s: %v, want a Bug", tt.name, err)
			continue
		}
		var expected []byte
		if tt.expected != 0 {
			expected = code(tt.expected)
		}
		if bug.Class != tt.class || !bytes.Equal(bug.Expected, expected) || bug.Site.Addr != siteAddr+tt.off {
			t.Errorf("%s: %v, want class %v, expected %08x", tt.name, err, tt.class, tt.expected)
		}
		if !bytes.Equal(mem.Data, before) {
			t.Errorf("%s: refused, but memory has changed", tt.name)
		}
	}
}

// A call by a veneer is known again, and no other one.
func TestFtraceVeneer(t *testing.T) {
	v := &Veneers{Addr: island, Size: 2 * VeneerLen}
	f := Ftrace{Veneers: v}
	site := arch.Site{Addr: siteAddr, Len: 4}
	mem := at(WordMovX9LR, WordNop)
	flush := func() {
		b, err := v.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := mem.WriteAt(b, island); err != nil {
			t.Fatal(err)
		}
	}
	steps := []func() error{
		func() error { return arch.MakeCall(f, mem, site, far) },
		func() error { return arch.ModifyCall(f, mem, site, far, far+0x1000) },
		func() error { return arch.ModifyCall(f, mem, site, far+0x1000, far) },
		func() error { return arch.MakeNop(f, mem, site, far) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		flush()
	}
	if v.Used() != 2*VeneerLen {
		t.Errorf("%d bytes of veneers", v.Used())
	}
	if err := arch.MakeCall(f, mem, site, far); err != nil {
		t.Fatal(err)
	}
	var bug *arch.Bug
	if err := arch.MakeNop(f, mem, site, far+0x1000); !errors.As(err, &bug) || bug.Class != arch.Mismatch {
		t.Errorf("nop of a call by another veneer: %v", err)
	} else if want, _ := AppendCall(nil, siteAddr, island+VeneerLen); !bytes.Equal(bug.Expected, want) {
		t.Errorf("expected % x, want % x", bug.Expected, want)
	}
	if err := arch.MakeNop(f, mem, site, far+0x2000); !errors.As(err, &bug) || bug.Expected != nil {
		t.Errorf("nop of a call for which there is no veneer: %v", err)
	}
	if err := arch.ModifyCall(f, mem, site, far, far+0x3000); !errors.As(err, &bug) || bug.Class != arch.Unreachable {
		t.Errorf("a full island: %v", err)
	}
}

// A whole table goes through the states in the order that is safe, in batches.
func TestFtraceBatch(t *testing.T) {
	var f Ftrace
	mem := arch.Bytes{Addr: siteAddr, Data: bytes.Repeat(code(WordNop, WordNop, WordPaciasp, WordRet), 10)}
	init, enable := &arch.Batch{Ftrace: f}, &arch.Batch{Ftrace: f}
	for i := range uint64(10) {
		addr, err := f.CallAdjust(mem, siteAddr+i*16)
		if err != nil || addr != siteAddr+i*16+4 {
			t.Fatalf("site %d: %#x, %v", i, addr, err)
		}
		site := arch.Site{Addr: addr, Len: 4}
		init.Add(InitChange(site))
		enable.Add(arch.Change{Action: arch.Call, Site: site, New: tramp})
	}
	if err := enable.Run(mem); err == nil {
		t.Error("sites were enabled before their mov was there")
	}
	if err := init.Run(mem); err != nil {
		t.Fatal(err)
	}
	if err := enable.Run(mem); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(10) {
		b := mem.Data[i*16:]
		if in := DecodeWord(word32(b[4:])); word32(b) != WordMovX9LR || in.Op != Call || in.Target(siteAddr+i*16+4) != tramp || word32(b[8:]) != WordPaciasp {
			t.Errorf("site %d: % x", i, b[:16])
		}
	}
}

func TestCallAdjust(t *testing.T) {
	for _, tt := range []struct {
		text   string
		before int
		words  []uint32
		want   int // of the site from the word, in instructions; -1: refused
	}{
		{"-pg", 0, []uint32{toMcount, movX0LR}, 0},
		{"-pg, turned off", 0, []uint32{WordNop, movX0LR}, 0},
		{"patchable", 0, []uint32{WordNop, WordNop, WordPaciasp}, 1},
		{"patchable, three", 0, []uint32{WordNop, WordNop, WordNop}, 1},
		{"patchable, disabled", 0, []uint32{WordMovX9LR, WordNop}, 1},
		{"patchable, enabled", 0, []uint32{WordMovX9LR, toTramp}, 1},
		{"patchable, one", 0, []uint32{WordNop, 0xa9be7bfd}, 0},
		{"landing pad", 0, []uint32{WordBtiC, WordNop, WordNop}, 2},
		{"landing pad, enabled", 0, []uint32{WordBtiJC, WordMovX9LR, toTramp}, 2},
		{"landing pad before -pg", 0, []uint32{WordBti, toMcount}, 1},
		{"paciasp is none of ours", 0, []uint32{WordPaciasp, WordNop, WordNop}, 0},
		{"4,2", 2, []uint32{WordNop, WordNop, WordNop, WordNop}, 3},
		{"4,2, enabled", 2, []uint32{WordNop, WordNop, WordMovX9LR, toTramp}, 3},
		{"4,2 and a landing pad", 2, []uint32{WordNop, WordNop, WordBtiC, WordNop, WordNop}, 4},
		{"4,2 and a landing pad, unasked", 0, []uint32{WordNop, WordNop, WordBtiC, WordNop, WordNop}, 4},
		{"4,2 with a literal", 2, []uint32{WordNop, 0x1234, WordMovX9LR, WordNop}, -1},
		{"4,2 cut off", 4, []uint32{WordNop, WordNop}, -1},
		{"a negative number", -1, []uint32{WordNop, WordNop}, -1},
		{"a huge number", 1 << 20, []uint32{WordNop, WordNop}, -1},
		{"cut off", 0, []uint32{WordNop}, 0},
		{"landing pad cut off", 0, []uint32{WordBtiC}, -1},
		{"nothing", 0, nil, -1},
	} {
		mem := arch.Bytes{Addr: siteAddr, Data: code(tt.words...)}
		got, err := Ftrace{Before: tt.before}.CallAdjust(mem, siteAddr)
		var bug *arch.Bug
		if tt.want < 0 {
			if !errors.As(err, &bug) {
				t.Errorf("%s: %#x, %v; want a Bug", tt.text, got, err)
			}
		} else if err != nil || got != siteAddr+uint64(tt.want)*4 {
			t.Errorf("%s: %#x, %v; want %#x", tt.text, got, err, siteAddr+tt.want*4)
		}
	}
	if _, err := (Ftrace{}).CallAdjust(arch.Bytes{Addr: siteAddr, Data: code(WordNop, WordNop)}, siteAddr+2); err == nil {
		t.Error("a word that is no multiple of 4: no error")
	}
}
