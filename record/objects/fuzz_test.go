package objects_test

import (
	"bytes"
	"debug/elf"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/cost"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/record/objects"
)

// perByte is what is allocated for a byte of an object at most.
const perByte = 128

// fuzzObjects are objects of many machines, and what compilers that are there make.
func fuzzObjects(f *testing.F) [][]byte {
	if assembled != nil {
		return assembled
	}
	out := [][]byte{
		synthetic(elf.EM_AARCH64, false, true, []uint32{0x94000000, 0xd65f03c0}, uint32(elf.R_AARCH64_CALL26), "_mcount"),
		synthetic(elf.EM_PPC64, true, true, []uint32{0x48000001}, uint32(elf.R_PPC64_REL24), "._mcount"),
		synthetic(elf.EM_RISCV, false, true, []uint32{0x97, 0x80e7}, uint32(elf.R_RISCV_CALL_PLT), "_mcount"),
		synthetic(elf.EM_MIPS, true, true, []uint32{0xdf990000, 0x0320f809}, 0x0b, "_mcount"),
		synthetic(elf.EM_X86_64, false, false, []uint32{0xe8}, uint32(elf.R_X86_64_PLT32), "__fentry__"),
	}
	for _, tt := range [][]string{
		{"gcc", "-O2", "-pg", "-mfentry"},
		{"gcc", "-O2", "-fPIC", "-pg", "-ffunction-sections", "-fno-plt"},
		{"gcc", "-m32", "-O2", "-pg", "-ffreestanding"},
		{"gcc", "-O2", "-fpatchable-function-entry=5"},
		{"gcc", "-O2", "-pg", "-mfentry", "-mrecord-mcount", "-mnop-mcount", "-fno-pie"},
		{"aarch64-linux-gnu-gcc", "-O2", "-pg"},
		{"aarch64-linux-gnu-gcc", "-O2", "-fpatchable-function-entry=4,2", "-ffunction-sections"},
		{"clang", "-O2", "-pg", "-fPIC"},
	} {
		if testtool.Have(f, tt[0]) {
			out = append(out, assemble(f, tt[0], imageOne, tt[1:]...))
		}
	}
	assembled = out
	return out
}

var assembled [][]byte // by fuzzObjects

func seeds(f *testing.F) {
	for _, b := range fuzzObjects(f) {
		f.Add(b)
	}
}

// sameSites compares the sites of an object with those of what was made of it.
func sameSites(t *testing.T, what string, a, b *objects.Object) {
	t.Helper()
	want, got := slices.Collect(a.Sites()), slices.Collect(b.Sites())
	if len(want) != len(got) {
		t.Errorf("%s: %d sites, before %d", what, len(got), len(want))
	}
}

// checkObject adds the table to an object and checks what must hold for any.
func checkObject(t *testing.T, b []byte, o objects.Options) {
	var ob *objects.Object
	var err error
	cost.Check(t, len(b), perByte, func() { ob, err = objects.Parse(b, o) })
	if err != nil {
		return
	}
	var res objects.Result
	cost.Check(t, len(b), 2*perByte, func() {
		for range ob.Check() {
		}
		ob.Unknown()
		for range ob.Sites() {
		}
		for range ob.Patchable() {
		}
		if fns, err := ob.Functions(); err == nil {
			fns.At(1, 0)
			for s, err := range ob.Patchable() {
				if err == nil {
					fns.Of(s)
				}
			}
		}
		res, err = ob.Output()
	})
	if err != nil || res.Output == nil {
		return
	}
	var out []byte
	cost.Check(t, len(b), perByte, func() { out = res.Output.Bytes() })
	if int64(len(out)) != res.Output.Size() || len(out) > 40*len(b)+1<<16 {
		t.Errorf("%+v: %d bytes, announced as %d, from %d", o, len(out), res.Output.Size(), len(b))
	}
	if !o.Compat {
		if back, err := objects.Strip(out); err != nil || !bytes.Equal(back, b) {
			t.Fatalf("%+v: Strip: %v", o, err)
		}
	}
	again, err := objects.Parse(out, o)
	if err != nil {
		t.Fatalf("%+v: %v", o, err)
	}
	if !o.Nop {
		if res.Nopped == 0 {
			sameSites(t, "with its table", ob, again)
		}
		if !again.Tabled() && res.Recorded > 0 {
			t.Errorf("%+v: %d entries recorded, but there is no table", o, res.Recorded)
		}
	}
	if res, err := again.Output(); err != nil || res.Output != nil {
		t.Errorf("%+v: a second run changes the object again (%v)", o, err)
	}
}

// FuzzObject: whatever the input, an error or an object that can be recorded, is complete then, and can be had back.
func FuzzObject(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, o := range []objects.Options{{}, {Compat: true}, {AllExec: true}, {Nop: true}, {KeepCalls: true}} {
			checkObject(t, b, o)
		}
	})
}

// FuzzChangedObject is FuzzObject for real objects with a few changes: three bytes of offset and a new byte each.
func FuzzChangedObject(f *testing.F) {
	all := fuzzObjects(f)
	for i := range all {
		f.Add(uint8(i), uint8(i), []byte{})
		f.Add(uint8(i), uint8(0), []byte{0x40, 0, 0, 1, 0x41, 0, 0, 2})
	}
	f.Fuzz(func(t *testing.T, which, options uint8, changes []byte) {
		b := bytes.Clone(all[int(which)%len(all)])
		for ; len(changes) >= 4; changes = changes[4:] {
			at := int(changes[0]) | int(changes[1])<<8 | int(changes[2])<<16
			b[at%len(b)] = changes[3]
		}
		checkObject(t, b, objects.Options{Compat: options&1 != 0, AllExec: options&2 != 0, Nop: options&4 != 0,
			KeepCalls: options&8 != 0})
	})
}

func FuzzStrip(f *testing.F) {
	seeds(f)
	for _, b := range fuzzObjects(f) {
		for _, o := range []objects.Options{{}, {Compat: true}} {
			ob, err := objects.Parse(b, o)
			if err != nil {
				f.Fatal(err)
			}
			res, err := ob.Output()
			if err != nil {
				f.Fatal(err)
			}
			if res.Output != nil {
				f.Add(res.Output.Bytes())
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var out []byte
		var err error
		cost.Check(t, len(b), perByte, func() { out, err = objects.Strip(b) })
		if err == nil && len(out) > len(b) {
			t.Fatal("the original is larger")
		}
	})
}

func FuzzImage(f *testing.F) {
	seeds(f)
	if testtool.Have(f, "gcc") {
		dir := f.TempDir()
		obj := filepath.Join(dir, "x.o")
		write(f, obj, record(f, assemble(f, "gcc", imageOne, "-O2", "-fPIC", "-pg", "-ffreestanding"), objects.Options{}))
		for _, z := range []string{"pack-relative-relocs", "nopack-relative-relocs"} {
			image := filepath.Join(dir, z)
			command(f, "gcc", "-shared", "-nostdlib", "-Wl,-z,"+z+",-z,max-page-size=16", obj, "-o", image)
			f.Add(read(f, image))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := elfio.Parse(b)
		if err != nil {
			return
		}
		for name, change := range map[string]func(*elfio.File) (objects.ImageResult, error){
			"sorting": objects.SortImage, "nops": nopImage,
		} {
			var res objects.ImageResult
			cost.Check(t, len(b), perByte, func() { res, err = change(file) })
			if err != nil || res.Output == nil {
				continue
			}
			out := res.Output.Bytes()
			if len(out) != len(b) {
				t.Fatalf("%s: %d bytes from %d", name, len(out), len(b))
			}
			changed, err := elfio.Parse(out)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := change(changed); err == nil && again.Changed != 0 {
				t.Fatalf("%s again changes %d more", name, again.Changed)
			}
		}
	})
}
