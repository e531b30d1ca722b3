package objects_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/record/objects"
)

// Objects of every kind of machine, with and without a table, some bytes of which are wrong: there is an error, or an
// object that can be recorded, is complete then, and can be had back.
func TestDamagedObjects(t *testing.T) {
	var seeds [][]byte
	for _, b := range [][]byte{
		synthetic(elf.EM_X86_64, false, true, []uint32{0x000000e8, 0xc300}, uint32(elf.R_X86_64_PLT32), "__fentry__"),
		synthetic(elf.EM_AARCH64, false, true, []uint32{0x94000000, 0xd65f03c0}, uint32(elf.R_AARCH64_CALL26), "_mcount"),
		synthetic(elf.EM_PPC64, true, true, []uint32{0x48000001}, uint32(elf.R_PPC64_REL24), "._mcount"),
		synthetic(elf.EM_RISCV, false, true, []uint32{0x97, 0x80e7}, uint32(elf.R_RISCV_CALL_PLT), "_mcount"),
		synthetic(elf.EM_MIPS, true, true, []uint32{0xdf990000, 0x0320f809}, 0x0b, "_mcount"),
	} {
		seeds = append(seeds, b)
		for _, o := range []objects.Options{{}, {Compat: true}} {
			seeds = append(seeds, record(t, b, o))
		}
	}
	rounds := 1500
	r := rand.New(rand.NewPCG(1, 2))
	for i, seed := range seeds {
		for range rounds {
			b := damaged(r, seed)
			if msg := recordAny(b, i%3 != 0); msg != "" {
				t.Fatalf("seed %d: %s\n%x", i, msg, b)
			}
		}
	}
}

// damaged returns a copy of b with some bytes changed, most of them in headers.
func damaged(r *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	var order binary.ByteOrder = binary.LittleEndian
	if b[5] == 2 {
		order = binary.BigEndian
	}
	shoff, shnum := int(order.Uint64(b[40:])), int(order.Uint16(b[60:]))
	for range 1 + r.IntN(3) {
		at := r.IntN(len(b) - 8)
		if r.IntN(3) > 0 {
			at = shoff + r.IntN(64*shnum-8)
		}
		switch r.IntN(5) {
		case 0:
			b[at] ^= 1 << r.IntN(8)
		case 1:
			b[at] = byte(r.IntN(16))
		case 2:
			b[at]++
		case 3:
			order.PutUint32(b[at&^7:], []uint32{0, 1, 0x7fffffff, 0xffffffff, uint32(len(b))}[r.IntN(5)])
		case 4:
			order.PutUint64(b[at&^7:], []uint64{1 << 63, ^uint64(0), uint64(r.IntN(len(b)))}[r.IntN(3)])
		}
	}
	return b
}

// recordAny does what can be done with b and says what is wrong with what came out. An object of which a table has been
// damaged (tabled) has an original of its own.
func recordAny(b []byte, tabled bool) (msg string) {
	defer func() {
		if p := recover(); p != nil {
			msg = fmt.Sprint("panic: ", p)
		}
	}()
	for _, o := range []objects.Options{{}, {Compat: true}, {AllExec: true}, {Nop: true}} {
		ob, err := objects.Parse(b, o)
		if err != nil {
			return ""
		}
		for range ob.Check() {
		}
		for range ob.Sites() {
		}
		res, err := ob.Output()
		if err != nil || res.Output == nil {
			continue
		}
		out := res.Output.Bytes()
		if len(out) > 8*len(b)+1<<17 {
			return fmt.Sprintf("%+v: %d bytes become %d", o, len(b), len(out))
		}
		if _, err := elfio.Parse(out); err != nil {
			return fmt.Sprintf("%+v: %v", o, err)
		}
		if tabled {
			continue
		}
		if again, err := objects.Parse(out, o); err != nil {
			return fmt.Sprintf("%+v: %v", o, err)
		} else if res, err := again.Output(); err != nil || res.Output != nil {
			return fmt.Sprintf("%+v: a second run: %v, recorded %d, nops %d", o, err, res.Recorded, res.Nopped)
		}
		if back, err := objects.Strip(out); err != nil || !bytes.Equal(back, b) {
			return fmt.Sprintf("%+v: Strip: %v", o, err)
		}
	}
	objects.Strip(b)
	return ""
}
