// func rdtsc2(n int)
TEXT ·rdtsc2(SB), 4, $0-8
	MOVQ n+0(FP), CX
loop:
	RDTSC
	RDTSC
	SUBQ $1, CX
	JNZ loop
	RET
