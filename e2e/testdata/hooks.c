// What gcc's -finstrument-functions and -pg -mfentry call: counts all entries (and exits), to check the fixtures' own counters.
#include "count.h"

#ifdef __cplusplus
extern "C" {
#endif
NOTRACE void __cyg_profile_func_enter(void *fn, void *site);
NOTRACE void __cyg_profile_func_exit(void *fn, void *site);
NOTRACE void __cyg_profile_func_enter(void *fn, void *site) { (void)fn, (void)site; COUNT_AS("(enter)"); }
NOTRACE void __cyg_profile_func_exit(void *fn, void *site) { (void)fn, (void)site; COUNT_AS("(exit)"); }
#ifdef __cplusplus
}
#endif

struct counter fentry_counter __attribute__((section("counters"), used)) = {"(fentry)", 0, 0, 0};
__asm__(".text\n"
	".globl __fentry__\n"
	".type __fentry__,@function\n"
	"__fentry__:\n"
	"	push %rax\n"
	"	push %rcx\n"
	"	mov 8+fentry_counter(%rip),%rax\n"
	"	lea 16+fentry_counter(%rip),%rcx\n"
	"	test %rax,%rax\n"
	"	cmove %rcx,%rax\n"
	"	lock incq (%rax)\n"
	"	pop %rcx\n"
	"	pop %rax\n"
	"	ret\n"
	".size __fentry__,.-__fentry__\n");
