// Calls leaf, which says what libgcc thinks its callers are as backtraces.c does, from where unwinding is not plain:
//	filter		before and after a filter that ends the process at system calls that it does not make itself
//	jit		code without unwind tables
//	unload DIR	libraries that take each other's place
#include <dlfcn.h>
#include <execinfo.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int quiet;
__attribute__((noinline)) int leaf(int x)
{
	void *pcs[600];
	int n = quiet ? 0 : backtrace(pcs, 600);
	if (n)
		printf("bt");
	for (int i = 1; i < n; i++)
		printf(" %lx", (unsigned long)pcs[i]);
	if (n)
		printf("\n");
	return x + 1;
}

__attribute__((noinline)) int known(int x) { return leaf(x) + 1; }
__attribute__((noinline)) int met(int x) { return leaf(x) + 2; }

static int compare(const void *a, const void *b) { return leaf(*(const int *)a) - *(const int *)b; }

__attribute__((noinline)) static void install(struct sock_fprog *p)
{
	if (p && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, p)))
		exit(77);
}

__attribute__((noinline)) static void filter(void)
{
	enum { NUMBER = offsetof(struct seccomp_data, nr) };
	static const int refused[] = { SYS_process_vm_readv, SYS_openat, SYS_getdents64, SYS_readlinkat,
#ifdef SYS_open
		SYS_open,
#endif
	};
	struct sock_filter f[2 + 2 * sizeof refused / sizeof *refused];
	int n = 0;
	f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NUMBER);
	for (unsigned i = 0; i < sizeof refused / sizeof *refused; i++) {
		f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i], 0, 1);
		f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	}
	f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog p = { n, f };
	volatile int times = 4; // the loop is not to be unrolled
	for (int i = 0; i < times; i++) {
		install(i == 2 ? &p : 0);
		known(1); // all from one place, which is known before the filter is there
	}
	quiet = 1;
	met(1);
	int v[] = { 2, 1 };
	qsort(v, 2, sizeof *v, compare);
}

static void jit(void)
{
#ifdef __aarch64__
	// stp x29, x30, [sp, #-16]!; mov x29, sp; ldr x16, leaf; blr x16; ldp x29, x30, [sp], #16; ret
	unsigned code[8] = { 0xa9bf7bfd, 0x910003fd, 0x58000090, 0xd63f0200, 0xa8c17bfd, 0xd65f03c0 };
	enum { LEAF = 6 };
#else
	// push %rbp; mov %rsp,%rbp; mov $leaf,%rax; call *%rax; pop %rbp; ret
	unsigned char code[] = { 0x55, 0x48, 0x89, 0xe5, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0, 0x5d, 0xc3 };
	enum { LEAF = 6 };
#endif
	int (*at)(int) = (int (*)(int))leaf;
	memcpy(code + LEAF, &at, sizeof at);
	unsigned char *p = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(p, code, sizeof code);
	__builtin___clear_cache((char *)p, (char *)p + sizeof code);
	quiet = 1;
	((int (*)(int))p)(1);
}

static void unload(const char *dir)
{
	for (int i = 0; i < 20; i++) {
		char path[4096];
		snprintf(path, sizeof path, "%s/%c.so", dir, 'a' + i % 2);
		void *h = dlopen(path, RTLD_NOW);
		if (!h)
			exit(1);
		int (*through)(int (*)(int)) = (int (*)(int (*)(int)))dlsym(h, "through");
		through(leaf);
		dlclose(h);
	}
}

int main(int argc, char **argv)
{
	if (!strcmp(argv[1], "filter"))
		filter();
	else if (!strcmp(argv[1], "jit"))
		jit();
	else
		unload(argv[2]);
	return argc == 0;
}
