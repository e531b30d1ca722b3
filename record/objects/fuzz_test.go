package objects_test

import (
	"bytes"
	"debug/elf"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/record/objects"
)

func seeds(f *testing.F) {
	f.Add(synthetic(elf.EM_AARCH64, false, true, []uint32{0x94000000, 0xd65f03c0}, uint32(elf.R_AARCH64_CALL26), "_mcount"))
	f.Add(synthetic(elf.EM_PPC64, true, true, []uint32{0x48000001}, uint32(elf.R_PPC64_REL24), "._mcount"))
	f.Add(synthetic(elf.EM_RISCV, false, true, []uint32{0x97, 0x80e7}, uint32(elf.R_RISCV_CALL_PLT), "_mcount"))
	f.Add(synthetic(elf.EM_MIPS, true, true, []uint32{0xdf990000, 0x0320f809}, 0x0b, "_mcount"))
	f.Add(synthetic(elf.EM_X86_64, false, false, []uint32{0xe8}, uint32(elf.R_X86_64_PLT32), "__fentry__"))
}

// FuzzObject: whatever the input, an error or an object that can be recorded, is complete then, and can be had back.
func FuzzObject(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, o := range []objects.Options{{}, {Compat: true}, {AllExec: true}, {Nop: true}} {
			ob, err := objects.Parse(b, o)
			if err != nil {
				return
			}
			ob.Check()
			for range ob.Sites() {
			}
			for range ob.Patchable() {
			}
			if fns, err := ob.Functions(); err == nil {
				fns.At(1, 0)
			}
			res, err := ob.Output()
			if err != nil || res.Output == nil {
				continue
			}
			out := res.Output.Bytes()
			if !o.Compat {
				if back, err := objects.Strip(out); err != nil || !bytes.Equal(back, b) {
					t.Fatalf("%+v: Strip: %v", o, err)
				}
			}
			if _, err := elfio.Parse(out); err != nil {
				t.Fatalf("%+v: %v", o, err)
			}
		}
	})
}

func FuzzStrip(f *testing.F) {
	seeds(f)
	for _, b := range [][]byte{synthetic(elf.EM_RISCV, false, true, []uint32{0x97, 0x80e7}, uint32(elf.R_RISCV_CALL_PLT), "_mcount")} {
		for _, o := range []objects.Options{{}, {Compat: true}} {
			ob, err := objects.Parse(b, o)
			if err != nil {
				f.Fatal(err)
			}
			res, err := ob.Output()
			if err != nil || res.Output == nil {
				f.Fatal(err)
			}
			f.Add(res.Output.Bytes())
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, err := objects.Strip(b); err == nil && len(out) > len(b) {
			t.Fatal("the original is larger")
		}
	})
}

func FuzzImage(f *testing.F) {
	seeds(f)
	if _, err := exec.LookPath("gcc"); err == nil {
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
		if res, err := objects.SortImage(file); err == nil && res.Output != nil {
			sorted, err := elfio.Parse(res.Output.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if again, err := objects.SortImage(sorted); err == nil && again.Changed != 0 {
				t.Fatalf("sorting again zeroes %d more", again.Changed)
			}
		}
		objects.NopImage(file)
	})
}
