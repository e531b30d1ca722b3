package machine

import (
	"debug/elf"
	"testing"
)

func TestNames(t *testing.T) {
	for _, want := range []struct {
		elf                          elf.Machine
		names                        []string
		emulator, sysroot, libraries string
	}{
		{elf.EM_X86_64, []string{"amd64", "x86_64"}, "qemu-x86_64", "/usr/x86_64-linux-gnu", "libc6-amd64-cross"},
		{elf.EM_AARCH64, []string{"arm64", "aarch64"}, "qemu-aarch64", "/usr/aarch64-linux-gnu", "libc6-arm64-cross"},
	} {
		m, ok := Of(want.elf)
		if !ok || m.Emulator() != want.emulator || m.Sysroot() != want.sysroot || m.Libraries() != want.libraries {
			t.Errorf("%v: %+v, %v", want.elf, m, ok)
		}
		for _, name := range want.names {
			if got, ok := Named(name); !ok || got != m {
				t.Errorf("%s: %+v, %v", name, got, ok)
			}
		}
	}
	if m, ok := Of(elf.EM_RISCV); ok {
		t.Errorf("programs of RISC-V are traced: %+v", m)
	}
	if m, ok := Named("x86-64"); ok {
		t.Errorf("x86-64 names %+v", m)
	}
	if got := Name(elf.EM_S390); got != "s390" {
		t.Errorf("Name: %s", got)
	}
}
