// pthread_cancel at a cancellation point and asynchronously, pthread_exit from nested calls, clean_up handlers, key destructors,
// and a main thread that leaves before the others.
#include "count.h"
#include <pthread.h>
#include <semaphore.h>

static sem_t there;
static int cleaned, destroyed;
static pthread_key_t key;

FN static void clean_up(void *p) { COUNT(); __atomic_add_fetch(&cleaned, (int)(intptr_t)p, __ATOMIC_SEQ_CST); }
FN static void destroy(void *p) { COUNT(); __atomic_add_fetch(&destroyed, (int)(intptr_t)p, __ATOMIC_SEQ_CST); }
FN static int leaf(int n) { COUNT(); return n + 1; }
FN static void sleeper(int n)
{
	COUNT();
	pthread_cleanup_push(clean_up, (void *)1);
	if (n == 0) {
		sem_post(&there);
		for (;;)
			pause();
	}
	sleeper(n - 1);
	leaf(n);
	pthread_cleanup_pop(0);
}
FN static void *cancelled(void *p)
{
	COUNT();
	pthread_setspecific(key, (void *)1);
	sleeper((int)(intptr_t)p);
	return NULL;
}
FN static void *asynchronous(void *p)
{
	COUNT();
	int old;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
	leaf(1);
	sem_post(&there);
	for (volatile unsigned long i = 0;; i++)
		;
	return p;
}
FN static void leave(int n)
{
	COUNT();
	pthread_cleanup_push(clean_up, (void *)1);
	if (n == 0)
		pthread_exit((void *)9);
	leave(n - 1);
	leaf(n);
	pthread_cleanup_pop(0);
}
FN static void *leaves(void *p)
{
	COUNT();
	pthread_setspecific(key, (void *)1);
	leave((int)(intptr_t)p);
	return NULL;
}
FN static void *last(void *p)
{
	COUNT();
	pthread_join(*(pthread_t *)p, NULL); // the main thread
	usleep(20000);
	say("last %d\n", leaf(1));
	ABANDON(1);
	exit(3);
}
static pthread_t main_thread;
int main(void)
{
	COUNT();
	sem_init(&there, 0, 0);
	pthread_key_create(&key, destroy);
	pthread_t t;
	void *r;
	for (intptr_t i = 0; i < 20; i++) {
		pthread_create(&t, NULL, cancelled, (void *)(i % 7));
		sem_wait(&there);
		pthread_cancel(t);
		pthread_join(t, &r);
		if (r != PTHREAD_CANCELED)
			abort();
		ABANDON(i % 7 + 2);
	}
	say("cancelled %d %d\n", cleaned, destroyed);
	pthread_create(&t, NULL, asynchronous, NULL);
	sem_wait(&there);
	pthread_cancel(t);
	pthread_join(t, &r);
	ABANDON(1);
	say("asynchronous %d\n", r == PTHREAD_CANCELED);
	for (intptr_t i = 0; i < 20; i++) {
		pthread_create(&t, NULL, leaves, (void *)(i % 5));
		pthread_join(t, &r);
		if (r != (void *)9)
			abort();
		ABANDON(i % 5 + 2);
	}
	say("left %d %d\n", cleaned, destroyed);
	main_thread = pthread_self();
	pthread_create(&t, NULL, last, &main_thread);
	ABANDON(1);
	pthread_exit(NULL);
}
