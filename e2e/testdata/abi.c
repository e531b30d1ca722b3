// What a tracer at function entry and exit must leave alone: arguments in registers and on the stack, varargs and their rax,
// every kind of return value (memory whose address is in x8), callee-saved registers, errno, the direction flag, mxcsr and the x87 control word.
//e2e:libs -lm
// behind mcount, a frame that is realigned hides where the return address is
//e2e:may-lack plain:callee plaincet:callee plainclang:callee shortsite:callee untabled:callee untabledmusl:callee mcount:use_avx mcount:use_avx512 mcount:ret_m256 mcount:ret_m512
#include "count.h"
#include <complex.h>
#include <errno.h>
#include <fenv.h>
#include <stdarg.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

struct two_ints { long a, b; };
struct two_doubles { double a, b; };
struct int_double { long a; double b; };
struct double_int { double a; long b; };
struct three_floats { float a, b, c; };
struct four_doubles { double v[4]; };
struct large { long v[9]; };
struct with_long_double { long double a; };
struct packed3 { char a, b, c; };
typedef struct { int f; struct two_doubles d; } memory_class;

FN static long stack_args(long a, long b, long c, long d, long e, long f, long g, long h, long i, double x, long j)
{
	COUNT();
	return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + (long)(10 * x) + 11 * j;
}
FN static double sse_args(double a, double b, double c, double d, double e, double f, double g, double h, double i, float j)
{
	COUNT();
	return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * (double)j;
}
FN static double variadic(const char *kinds, ...)
{
	COUNT();
	va_list ap;
	va_start(ap, kinds);
	double s = 0;
	for (int i = 1; *kinds; kinds++, i++)
		switch (*kinds) {
		case 'i': s += i * va_arg(ap, int); break;
		case 'l': s += i * (double)va_arg(ap, long); break;
		case 'd': s += i * va_arg(ap, double); break;
		case 'L': s += i * (double)va_arg(ap, long double); break;
		case 's': s += i * (double)strlen(va_arg(ap, const char *)); break;
		case 'B': s += i * (double)va_arg(ap, struct large).v[8]; break;
		}
	va_end(ap);
	return s;
}
FN static struct two_ints ret_ints(long n) { COUNT(); return (struct two_ints){n, ~n}; }
FN static struct two_doubles ret_doubles(double n) { COUNT(); return (struct two_doubles){n, -n * 3}; }
FN static struct int_double ret_int_double(long n) { COUNT(); return (struct int_double){n, (double)n / 4}; }
FN static struct double_int ret_double_int(double n) { COUNT(); return (struct double_int){n, (long)n * 5}; }
FN static struct three_floats ret_floats(float n) { COUNT(); return (struct three_floats){n, n + 1, n + 2}; }
FN static struct four_doubles ret_four_doubles(double n) { COUNT(); return (struct four_doubles){{n, n + 1, n + 2, n + 3}}; }
FN static struct large ret_large(long n) { COUNT(); struct large l; for (int i = 0; i < 9; i++) l.v[i] = n * i; return l; }
FN static struct packed3 ret_packed(char n) { COUNT(); return (struct packed3){n, (char)(n + 1), (char)(n + 2)}; }
FN static memory_class ret_memory(int n) { COUNT(); return (memory_class){n, {n + .5, n + .25}}; }
FN static struct with_long_double ret_struct_ld(long double n) { COUNT(); return (struct with_long_double){n * 2}; }
FN static long double ret_long_double(long double a, long double b) { COUNT(); return a / b; }
FN static float ret_float(float a) { COUNT(); return a * 1.5f; }
FN static float complex ret_complex_float(float a) { COUNT(); return a + 2 * a * I; }
FN static double complex ret_complex_double(double a) { COUNT(); return a - 3 * a * I; }
FN static long double complex ret_complex_ld(long double a) { COUNT(); return a + 5 * a * I; }
FN static __int128 ret_int128(__int128 a, __int128 b) { COUNT(); return a * b; }
FN static _Bool ret_bool(int a) { COUNT(); return a & 1; }
typedef int four_ints __attribute__((vector_size(16)));
FN static four_ints ret_vector(four_ints a) { COUNT(); return a + a; }
#ifdef __x86_64__
__attribute__((target("avx"))) FN static __m256d ret_m256(__m256d a, __m256d b) { COUNT(); return _mm256_add_pd(a, b); }
__attribute__((target("avx"))) FN static void use_avx(void)
{
	COUNT();
	__m256d a = _mm256_set_pd(1, 2, 3, 4), s = a;
	for (int i = 0; i < 100; i++)
		s = ret_m256(s, a);
	double out[4];
	_mm256_storeu_pd(out, s);
	say("m256 %g %g %g %g\n", out[0], out[1], out[2], out[3]);
}
__attribute__((target("avx512f"))) FN static __m512d ret_m512(__m512d a, __m512d b) { COUNT(); return _mm512_add_pd(a, b); }
__attribute__((target("avx512f"))) FN static double use_avx512(void)
{
	COUNT();
	__m512d a = _mm512_set_pd(1, 2, 3, 4, 5, 6, 7, 8), s = a;
	for (int i = 0; i < 100; i++)
		s = ret_m512(s, a);
	return _mm512_reduce_add_pd(s);
}
#endif
// A caller in assembly that loads every register a callee may be given or must keep, and looks at all of them afterwards.
FN struct two_ints callee(long a, long b, long c, long d, long e, long f);
struct two_ints callee(long a, long b, long c, long d, long e, long f)
{
	COUNT();
	return (struct two_ints){a + 10 * b + 100 * c + 1000 * d + 10000 * e + 100000 * f, a * b * c * d * e * f};
}
#ifdef __x86_64__
struct regs { uint64_t rax, rdx, rbx, rbp, r12, r13, r14, r15, rsp_before, rsp_after, flags; };
void call_with_registers(struct regs *out);
__asm__(".text\n"
	".type call_with_registers,@function\n"
	"call_with_registers:\n"
	"	.cfi_startproc\n"
	"	push %rbp; .cfi_adjust_cfa_offset 8; push %rbx; .cfi_adjust_cfa_offset 8\n"
	"	push %r12; .cfi_adjust_cfa_offset 8; push %r13; .cfi_adjust_cfa_offset 8\n"
	"	push %r14; .cfi_adjust_cfa_offset 8; push %r15; .cfi_adjust_cfa_offset 8\n"
	"	push %rdi; .cfi_adjust_cfa_offset 8\n"
	"	mov %rsp,64(%rdi)\n"
	"	mov $0x1111,%ebx; mov $0x2222,%ebp; mov $0x3333,%r12d; mov $0x4444,%r13d; mov $0x5555,%r14d; mov $0x6666,%r15d\n"
	"	mov $1,%edi; mov $2,%esi; mov $3,%edx; mov $4,%ecx; mov $5,%r8d; mov $6,%r9d; mov $8,%eax; mov $0x7777,%r10d; mov $0x8888,%r11d\n"
	"	call callee\n"
	"	mov (%rsp),%rdi\n"
	"	mov %rax,(%rdi); mov %rdx,8(%rdi); mov %rbx,16(%rdi); mov %rbp,24(%rdi); mov %r12,32(%rdi)\n"
	"	mov %r13,40(%rdi); mov %r14,48(%rdi); mov %r15,56(%rdi); mov %rsp,72(%rdi)\n"
	"	pushf; pop %rax; and $0x400,%eax; mov %rax,80(%rdi)\n"
	"	pop %rdi; .cfi_adjust_cfa_offset -8\n"
	"	pop %r15; .cfi_adjust_cfa_offset -8; pop %r14; .cfi_adjust_cfa_offset -8\n"
	"	pop %r13; .cfi_adjust_cfa_offset -8; pop %r12; .cfi_adjust_cfa_offset -8\n"
	"	pop %rbx; .cfi_adjust_cfa_offset -8; pop %rbp; .cfi_adjust_cfa_offset -8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size call_with_registers,.-call_with_registers\n");

FN static void registers(void)
{
	COUNT();
	struct regs r;
	for (int i = 0; i < 1000; i++) {
		memset(&r, 0xff, sizeof r);
		call_with_registers(&r);
	}
	say("regs %lx %lx %lx %lx %lx %lx %lx %lx stack %d df %lx\n", r.rax, r.rdx, r.rbx, r.rbp, r.r12, r.r13, r.r14, r.r15,
	    r.rsp_before == r.rsp_after, r.flags);
}
#else // aarch64
struct regs { uint64_t x0, x1, kept[11], vectors[8], sp_before, sp_after; };
void call_with_registers(struct regs *out);
__asm__(".text\n"
	".type call_with_registers,@function\n"
	"call_with_registers:\n"
	"	.cfi_startproc\n"
	"	hint #34\n" // bti c
	"	stp x29,x30,[sp,#-176]!\n"
	"	.cfi_def_cfa_offset 176; .cfi_offset 29, -176; .cfi_offset 30, -168\n"
	"	stp x19,x20,[sp,#16]; stp x21,x22,[sp,#32]; stp x23,x24,[sp,#48]; stp x25,x26,[sp,#64]; stp x27,x28,[sp,#80]\n"
	"	stp d8,d9,[sp,#96]; stp d10,d11,[sp,#112]; stp d12,d13,[sp,#128]; stp d14,d15,[sp,#144]; str x0,[sp,#160]\n"
	"	mov x1,sp; str x1,[x0,#168]\n"
	"	mov x19,#0x1900; mov x20,#0x2000; mov x21,#0x2100; mov x22,#0x2200; mov x23,#0x2300\n"
	"	mov x24,#0x2400; mov x25,#0x2500; mov x26,#0x2600; mov x27,#0x2700; mov x28,#0x2800; mov x29,#0x2900\n"
	"	fmov d8,x19; fmov d9,x20; fmov d10,x21; fmov d11,x22; fmov d12,x23; fmov d13,x24; fmov d14,x25; fmov d15,x26\n"
	"	mov x0,#1; mov x1,#2; mov x2,#3; mov x3,#4; mov x4,#5; mov x5,#6; mov x8,#8; mov x16,#16; mov x17,#17\n"
	"	bl callee\n"
	"	ldr x9,[sp,#160]\n"
	"	stp x0,x1,[x9]; stp x19,x20,[x9,#16]; stp x21,x22,[x9,#32]; stp x23,x24,[x9,#48]; stp x25,x26,[x9,#64]; stp x27,x28,[x9,#80]; str x29,[x9,#96]\n"
	"	stp d8,d9,[x9,#104]; stp d10,d11,[x9,#120]; stp d12,d13,[x9,#136]; stp d14,d15,[x9,#152]; mov x1,sp; str x1,[x9,#176]\n"
	"	ldp x19,x20,[sp,#16]; ldp x21,x22,[sp,#32]; ldp x23,x24,[sp,#48]; ldp x25,x26,[sp,#64]; ldp x27,x28,[sp,#80]\n"
	"	ldp d8,d9,[sp,#96]; ldp d10,d11,[sp,#112]; ldp d12,d13,[sp,#128]; ldp d14,d15,[sp,#144]\n"
	"	ldp x29,x30,[sp],#176\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size call_with_registers,.-call_with_registers\n");

FN static void registers(void)
{
	COUNT();
	struct regs r;
	for (int i = 0; i < 1000; i++) {
		memset(&r, 0xff, sizeof r);
		call_with_registers(&r);
	}
	say("regs %lx %lx stack %d kept", r.x0, r.x1, r.sp_before == r.sp_after);
	for (int i = 0; i < 11; i++)
		say(" %lx", r.kept[i]);
	for (int i = 0; i < 8; i++)
		say(" %lx", r.vectors[i]);
	say("\n");
}
#endif
// Small static functions whose callers the compiler lets keep values in caller-saved registers (-fipa-ra).
FN static long tiny(long a) { COUNT(); return a + 1; }
FN static long keeps(const long *v)
{
	COUNT();
	long a = v[0], b = v[1], c = v[2], d = v[3], e = v[4], f = v[5], g = v[6], h = v[7];
	long s = tiny(a) + tiny(b) * 3;
	return s + a * 2 + b * 3 + c * 5 + d * 7 + e * 11 + f * 13 + g * 17 + h * 19;
}
FN static double keeps_floats(const double *v)
{
	COUNT();
	double a = v[0], b = v[1], c = v[2], d = v[3];
	long s = tiny((long)a) + tiny((long)b);
	return (double)s + a * 2 + b * 3 + c * 5 + d * 7;
}
FN static int sets_errno(int n)
{
	COUNT();
	errno = 1000 + n;
	int r = 0;
	for (int i = 0; i < 20000; i++) // crosses buffer boundaries
		r += (int)tiny(i) & 1;
	return errno + r - r;
}
FN static double rounding(double a) { COUNT(); return a / 3.0; }
int main(void)
{
	COUNT();
	say("stack %ld\n", stack_args(1, 2, 3, 4, 5, 6, 7, 8, 9, 10.5, 11));
	say("sse %g\n", sse_args(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
	struct large l = ret_large(3);
	say("variadic %g\n", variadic("idlLsBdddddddddi", 1, 2.5, 3L, 4.5L, "five", l, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10));
	struct two_ints ti = ret_ints(77);
	struct two_doubles td = ret_doubles(1.25);
	struct int_double id = ret_int_double(9);
	struct double_int di = ret_double_int(8.0);
	struct three_floats tf = ret_floats(0.5f);
	struct packed3 p3 = ret_packed('x');
	memory_class mc = ret_memory(6);
	say("structs %ld %ld %g %g %ld %g %g %ld %g %g %g %ld %c%c%c %d %g %g\n", ti.a, ti.b, td.a, td.b, id.a, id.b, di.a, di.b,
	    (double)tf.a, (double)tf.b, (double)tf.c, l.v[8], p3.a, p3.b, p3.c, mc.f, mc.d.a, mc.d.b);
	say("long double %.18Lg %.18Lg float %g\n", ret_long_double(1, 3), ret_struct_ld(2.5L).a, (double)ret_float(3));
	float complex cf = ret_complex_float(1.5f);
	double complex cd = ret_complex_double(2.5);
	long double complex cl = ret_complex_ld(3.5L);
	say("complex %g %g %g %g %.17Lg %.17Lg\n", (double)crealf(cf), (double)cimagf(cf), creal(cd), cimag(cd), creall(cl), cimagl(cl));
	__int128 big = ret_int128((__int128)1 << 70, 12345);
	say("int128 %llx %llx bool %d\n", (unsigned long long)(big >> 64), (unsigned long long)big, ret_bool(3));
	four_ints v4 = ret_vector((four_ints){1, 2, 3, 4});
	struct four_doubles fd = ret_four_doubles(1.5);
	say("vector %d %d %d %d %g %g\n", v4[0], v4[1], v4[2], v4[3], fd.v[0], fd.v[3]);
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx"))
		use_avx();
	if (__builtin_cpu_supports("avx512f"))
		say("m512 %g\n", use_avx512());
#endif
	registers();
	long lv[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	double dv[4] = {1.5, 2.5, 3.5, 4.5};
	long s = 0;
	double ds = 0;
	for (int i = 0; i < 1000; i++) {
		lv[i % 8] += i;
		s += keeps(lv);
		ds += keeps_floats(dv);
	}
	say("keeps %ld %g errno %d\n", s, ds, sets_errno(5));
	fesetround(FE_UPWARD);
	double up = rounding(1);
	fesetround(FE_DOWNWARD);
	double down = rounding(1);
	fesetround(FE_TONEAREST);
	say("rounding %d\n", up > down);
	return 0;
}
