package amd64

import "testing"

func TestFlagUse(t *testing.T) {
	const c, o, all = FlagCarry, FlagOthers, AllFlags
	for _, tt := range []struct {
		code, text   string
		reads, kills Flags
	}{
		{"01 c8", "add %ecx,%eax", 0, all},
		{"83 f8 01", "cmp $1,%eax", 0, all},
		{"83 d0 00", "adc $0,%eax", c, all},
		{"19 c0", "sbb %eax,%eax", c, all},
		{"85 c0", "test %eax,%eax", 0, all},
		{"ff c0", "inc %eax", 0, o},
		{"ff e0", "jmp *%rax", 0, 0},
		{"f7 d8", "neg %eax", 0, all},
		{"f7 d0", "not %eax", 0, 0},
		{"f7 e1", "mul %ecx", 0, all},
		{"48 c1 e8 03", "shr $3,%rax", 0, all},
		{"48 c1 e8 20", "shr $32,%rax", 0, all},
		{"c1 e8 20", "shr $32,%eax, which is by none", 0, 0},
		{"48 c1 e8 40", "shr $64,%rax, which is by none", 0, 0},
		{"d1 e8", "shr %eax", 0, all},
		{"d3 e8", "shr %cl,%eax", 0, 0},
		{"d1 d0", "rcl %eax", c, 0},
		{"c1 c0 03", "rol $3,%eax", 0, 0},
		{"72 00", "jb", c, 0},
		{"0f 84 00 00 00 00", "je", o, 0},
		{"77 00", "ja", all, 0},
		{"7c 00", "jl", o, 0},
		{"0f 46 c1", "cmovbe %ecx,%eax", all, 0},
		{"0f 94 c0", "sete %al", o, 0},
		{"c5 f4 41 c2", "kandw, not cmovno", 0, 0},
		{"e1 00", "loope", o, 0},
		{"e3 00", "jrcxz", 0, 0},
		{"0f a3 c8", "bt %ecx,%eax", 0, c},
		{"0f af c1", "imul %ecx,%eax", 0, all},
		{"66 0f 2e c1", "ucomisd %xmm1,%xmm0", 0, all},
		{"f3 0f b8 c1", "popcnt %ecx,%eax", 0, all},
		{"0f bc c1", "bsf %ecx,%eax", 0, all},
		{"f3 48 0f bd c1", "lzcnt %rcx,%rax", 0, all},
		{"48 0f a4 c8 20", "shld $32,%rcx,%rax", 0, all},
		{"0f a4 c8 20", "shld $32,%ecx,%eax, which is by none", 0, 0},
		{"0f a5 c8", "shld %cl,%ecx,%eax", 0, 0},
		{"66 0f 38 17 c1", "ptest %xmm1,%xmm0", 0, all},
		{"66 0f 3a 63 c1 0c", "pcmpistri $12,%xmm1,%xmm0", 0, all},
		{"c5 f9 2e c1", "vucomisd %xmm1,%xmm0", 0, all},
		{"62 f1 fd 08 2f c1", "vcomisd %xmm1,%xmm0", 0, all},
		{"c4 e2 7d 17 c1", "vptest %ymm1,%ymm0", 0, all},
		{"c5 f8 98 c1", "kortestw %k1,%k0", 0, all},
		{"c4 e2 78 f2 c1", "andn %ecx,%eax,%eax", 0, all},
		{"c4 e2 71 f7 c1", "shlx %ecx,%ecx,%eax", 0, 0},
		{"c5 f8 58 c1", "vaddps %xmm1,%xmm0,%xmm0", 0, 0},
		{"db e9", "fucomi %st(1)", 0, all},
		{"df f1", "fcomip %st(1)", 0, all},
		{"db 28", "fldt (%rax)", 0, 0},
		{"da e9", "fucompp", 0, 0},
		{"f3 a6", "repz cmpsb", 0, 0},
		{"9c", "pushf", all, 0},
		{"f5", "cmc", c, c},
		{"f8", "clc", 0, c},
		{"66 0f 38 f6 c1", "adcx %ecx,%eax", all, 0},
		{"db c1", "fcmovnb", all, 0},
		{"48 89 c8", "mov %rcx,%rax", 0, 0},
		{"e8 00 00 00 00", "call", 0, 0},
	} {
		b := unhex(t, tt.code)
		in, err := Decode(b)
		if err != nil || in.Len != len(b) {
			t.Errorf("%s: %v, %d bytes", tt.text, err, in.Len)
			continue
		}
		if reads, kills := in.FlagUse(b); reads != tt.reads || kills != tt.kills {
			t.Errorf("%s: reads %b, kills %b; want %b, %b", tt.text, reads, kills, tt.reads, tt.kills)
		}
	}
}
