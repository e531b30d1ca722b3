package amd64

import (
	"encoding/hex"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatalf("bad hex %q: %v", s, err)
	}
	return b
}

func TestDecode(t *testing.T) {
	const pc = 0x401000
	for _, tt := range []struct {
		code   string
		op     Op
		target uint64 // 0: not PC-relative
		off    int    // of the displacement
		text   string
	}{
		{"90", Nop, 0, 0, "nop"},
		{"f3 90", Other, 0, 0, "pause"},
		{"41 90", Other, 0, 0, "xchg %eax,%r8d"},
		{"66 90", Nop, 0, 0, "xchg %ax,%ax"},
		{"0f 1f 44 00 08", Nop, 0, 0, "nopl 8(%rax,%rax)"},
		{"66 66 2e 0f 1f 84 00 00 00 00 00", Nop, 0, 0, "data16 cs nopw 0(%rax,%rax)"},
		{"f3 0f 1e fa", Endbr64, 0, 0, "endbr64"},
		{"f3 0f 1e fb", Endbr32, 0, 0, "endbr32"},
		{"f3 48 0f 1e c8", Other, 0, 0, "rdsspq %rax"},
		{"55", Push, 0, 0, "push %rbp"},
		{"41 57", Push, 0, 0, "push %r15"},
		{"48 89 e5", Other, 0, 0, "mov %rsp,%rbp"},
		{"e8 fb 0f 00 00", Call, pc + 0x1000, 1, "call"},
		{"67 e8 fa 0f 00 00", Call, pc + 0x1000, 2, "addr32 call"},
		{"66 66 48 e8 f8 0f 00 00", Call, pc + 0x1000, 4, "data16 data16 rex.W call"},
		{"f2 e8 fa 0f 00 00", Call, pc + 0x1000, 2, "bnd call"},
		{"ff 15 fa 0f 00 00", CallInd, pc + 0x1000, 2, "call *0xffa(%rip)"},
		{"66 48 ff 15 f8 0f 00 00", CallInd, pc + 0x1000, 4, "data16 rex.W call *0xff8(%rip)"},
		{"41 ff d2", CallInd, 0, 0, "call *%r10"},
		{"ff 25 fa 0f 00 00", JmpInd, pc + 0x1000, 2, "jmp *0xffa(%rip)"},
		{"3e ff e0", JmpInd, 0, 0, "notrack jmp *%rax"},
		{"48 ff 2b", JmpFar, 0, 0, "rex.W ljmp *(%rbx)"},
		{"eb fe", Jmp, pc, 1, "jmp ."},
		{"e9 fb ff ff ff", Jmp, pc, 1, "jmp ."},
		{"75 0e", Jcc, pc + 0x10, 1, "jne"},
		{"2e 0f 84 09 00 00 00", Jcc, pc + 0x10, 3, "je,pn"},
		{"e2 fe", Loop, pc, 1, "loop ."},
		{"67 e3 fd", Jrcxz, pc, 2, "jecxz ."},
		{"c7 f8 0a 00 00 00", Xbegin, pc + 0x10, 2, "xbegin"},
		{"66 c7 f8 fb ff", Xbegin, pc, 3, "xbeginw"},
		{"c6 f8 ff", Other, 0, 0, "xabort $0xff"},
		{"c3", Ret, 0, 0, "ret"},
		{"f3 c3", Ret, 0, 0, "repz ret"},
		{"c2 08 00", Ret, 0, 0, "ret $8"},
		{"c8 10 00 00", Enter, 0, 0, "enter $16,$0"},
		{"48 b8 08 07 06 05 04 03 02 01", Other, 0, 0, "movabs $0x102030405060708,%rax"},
		{"66 b8 34 12", Other, 0, 0, "mov $0x1234,%ax"},
		{"66 48 b8 08 07 06 05 04 03 02 01", Other, 0, 0, "data16 movabs"},
		{"48 66 b8 34 12", Other, 0, 0, "mov $0x1234,%ax after a REX prefix without effect"},
		{"a1 08 07 06 05 04 03 02 01", Other, 0, 0, "movabs 0x102030405060708,%eax"},
		{"67 a1 04 03 02 01", Other, 0, 0, "addr32 mov 0x1020304,%eax"},
		{"f6 c1 01", Other, 0, 0, "test $1,%cl"},
		{"f6 d9", Other, 0, 0, "neg %cl"},
		{"66 f7 05 f7 0f 00 00 34 12", Other, pc + 0x1000, 3, "testw $0x1234,0xff7(%rip)"},
		{"48 8d 05 00 ff ff ff", Other, pc - 0xf9, 3, "lea -0x100(%rip),%rax"},
		{"67 48 8d 05 f0 ef bf ff", Other, 0xffffffff_fffffff8 & 0xffffffff, 4, "lea disp(%eip),%rax wraps at 32 bits"},
		{"c7 05 f6 0f 00 00 01 00 00 00", Other, pc + 0x1000, 2, "movl $1,0xff6(%rip)"},
		{"c5 f8 77", Other, 0, 0, "vzeroupper"},
		{"c5 fc 28 15 f8 0f 00 00", Other, pc + 0x1000, 4, "vmovaps 0xff8(%rip),%ymm2"},
		{"c4 e3 7d 19 05 f6 0f 00 00 01", Other, pc + 0x1000, 5, "vextractf128 $1,%ymm0,0xff6(%rip)"},
		{"62 f1 7c 48 28 05 f6 0f 00 00", Other, pc + 0x1000, 6, "vmovaps 0xff6(%rip),%zmm0"},
		{"62 f3 7d 48 25 05 f5 0f 00 00 ff", Other, pc + 0x1000, 6, "vpternlogd $0xff,0xff5(%rip),%zmm0,%zmm0"},
		{"66 0f 38 f6 c1", Other, 0, 0, "adcx %ecx,%eax"},
		{"f3 0f 38 f6 c1", Other, 0, 0, "adox %ecx,%eax"},
		{"8f e9 78 81 c1", Other, 0, 0, "vfrczpd %xmm1,%xmm0 (XOP)"},
		{"8f ea 78 10 c1 04 03 02 01", Other, 0, 0, "bextr $0x1020304,%ecx,%eax (XOP)"},
		{"8f c0", Pop, 0, 0, "pop %rax, two bytes"},
		{"0f 0f c1 9e", Other, 0, 0, "pfadd %mm1,%mm0"},
		{"0f 0f 05 f8 0f 00 00 9e", Other, pc + 0x1000, 3, "pfadd 0xff8(%rip),%mm0"},
		{"66 0f 78 c1 01 02", Other, 0, 0, "extrq $2,$1,%xmm1"},
		{"f2 0f 78 c1 01 02", Other, 0, 0, "insertq $2,$1,%xmm1,%xmm0"},
		{"0f 78 c1", Other, 0, 0, "vmread %rax,%rcx"},
		{"0f 20 05", Other, 0, 0, "mov %cr0,%rbp: mod is ignored"},
		{"0f 05", Syscall, 0, 0, "syscall"},
		{"0f 0b", Ud, 0, 0, "ud2"},
		{"67 0f b9 40 02", Ud, 0, 0, "ud1 2(%eax),%eax"},
		{"cc", Int3, 0, 0, "int3"},
		{"f4", Hlt, 0, 0, "hlt"},
		{"0f 01 ee", Other, 0, 0, "rdpkru"},
		{"8b 04 25 10 00 00 00", Other, 0, 0, "mov 0x10,%eax"},
		{"64 48 8b 04 25 28 00 00 00", Other, 0, 0, "mov %fs:0x28,%rax"},
		{"8b 44 25 10", Other, 0, 0, "mov 0x10(%rbp),%eax"},
	} {
		code := unhex(t, tt.code)
		// What follows must not matter, nor may it be needed.
		for _, tail := range []string{"", strings.Repeat("\x00", 20), strings.Repeat("\xff", 20)} {
			in, err := Decode([]byte(string(code) + tail))
			if err != nil {
				t.Errorf("%s (%s): %v", tt.code, tt.text, err)
				continue
			}
			if in.Len != len(code) || in.Op != tt.op || in.Target(pc) != tt.target || in.PCOff != tt.off {
				t.Errorf("%s (%s): length %d, op %v, target %#x at %d; want %d, %v, %#x at %d", tt.code, tt.text,
					in.Len, in.Op, in.Target(pc), in.PCOff, len(code), tt.op, tt.target, tt.off)
			}
		}
		for n := range code {
			if in, err := Decode(code[:n]); err != ErrTruncated {
				t.Errorf("%s (%s): first %d bytes: %+v, %v; want ErrTruncated", tt.code, tt.text, n, in, err)
			}
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, tt := range []struct {
		code string
		want error
		text string
	}{
		{"d5 00 90", ErrUndecided, "REX2"},
		{"62 f4 7c 08 01 c0", ErrUndecided, "EVEX map 4"},
		{"62 f9 7c 48 28 00", ErrUndecided, "EVEX with the fourth base bit"},
		{"62 f1 78 48 28 00", ErrUndecided, "EVEX with the fourth index bit"},
		{"66 e8 00 00 00 00", ErrUndecided, "call with operand size 16"},
		{"66 e9 00 00 00 00", ErrUndecided, "jmp with operand size 16"},
		{"66 0f 84 00 00 00 00", ErrUndecided, "je with operand size 16"},
		{"66 eb 00", ErrUndecided, "jmp rel8 with operand size 16"},
		{"0f ff c0", ErrUndecided, "ud0"},
		{"06", ErrInvalid, "push %es"},
		{"9a 00 00 00 00 00 00", ErrInvalid, "lcall"},
		{"d6", ErrInvalid, "salc"},
		{"8d c0", ErrInvalid, "lea of a register"},
		{"ff ff", ErrInvalid, "ff /7"},
		{"ff d8", ErrInvalid, "far call of a register"},
		{"0f 04", ErrInvalid, "0f 04"},
		{"66 c5 f8 77", ErrInvalid, "operand size before VEX"},
		{"48 c5 f8 77", ErrInvalid, "REX before VEX"},
		{"0f 0f c1 00", ErrInvalid, "no such 3DNow! operation"},
		{strings.Repeat("66 ", 14) + "90", nil, "15 bytes"},
		{strings.Repeat("66 ", 15) + "90", ErrTooLong, "16 bytes"},
		{strings.Repeat("66 ", 11) + "05 00 00 00 00", nil, "14 bytes"},
		{strings.Repeat("2e ", 11) + "05 00 00 00 00", ErrTooLong, "16 bytes"},
	} {
		in, err := Decode(append(unhex(t, tt.code), make([]byte, 16)...))
		if err != tt.want {
			t.Errorf("%s (%s): %+v, %v; want %v", tt.code, tt.text, in, err, tt.want)
		}
	}
}
