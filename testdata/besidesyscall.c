/* Threads that are cancelled at any instruction between what is called before a system call and what is called behind it, as
   glibc's functions are that wait, until standard input ends. It says "right" if all have cleaned up. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOINLINE __attribute__((noipa))

static volatile long cleaned, cancelled;
static volatile int over;

NOINLINE int before(void)
{
	int old;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
	return old;
}

NOINLINE int behind(int old)
{
	pthread_setcanceltype(old, &old);
	return old;
}

NOINLINE long leaf(long n) { return 2 * n; }

NOINLINE int asks(void)
{
	long id;
	int old = before();
	__asm__ volatile("syscall" : "=a"(id) : "0"((long)SYS_getppid) : "rcx", "r11", "memory");
	old = behind(old);
	__asm__ volatile("" : "+r"(old));
	return old;
}

static void cleans(void *unused) { cleaned++; }

static void *waits(void *began)
{
	pthread_cleanup_push(cleans, 0);
	for (;;) {
		*(volatile int *)began = 1;
		asks();
	}
	pthread_cleanup_pop(0);
	return 0;
}

static void *cancels(void *unused)
{
	while (!over) {
		volatile int began = 0;
		pthread_t t;
		if (pthread_create(&t, 0, waits, (void *)&began))
			continue;
		while (!began)
			usleep(50);
		usleep(100 + leaf(cancelled % 100));
		pthread_cancel(t);
		pthread_join(t, 0);
		cancelled++;
	}
	return 0;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, 0, cancels, 0);
	while (!cancelled)
		usleep(1000);
	prctl(PR_SET_NAME, "ready");
	char c;
	while (read(0, &c, 1) > 0)
		;
	over = 1;
	pthread_join(t, 0);
	if (cleaned == cancelled)
		puts("right");
	else
		printf("%ld of %ld threads have cleaned up\n", cleaned, cancelled);
	return 7;
}
