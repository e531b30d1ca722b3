/* Integers, and the atomic operations on them: the runtime has no header of a C library. */
#ifndef FENTRY_TYPES_H
#define FENTRY_TYPES_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long u64;
typedef long i64;

#define hidden __attribute__((visibility("hidden")))

/* at asserts that member m of struct s is at offset o, as assembly and Go believe. */
#define at(s, m, o) _Static_assert(offsetof(struct s, m) == o, #s "." #m)

#define offsetof(t, m) __builtin_offsetof(t, m)
#define lengthof(a) (sizeof(a) / sizeof((a)[0]))
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Compilers make calls of these out of plain C. They get names of their own, or
   a program linked with the static library would get our simple ones for its. */
void *memset(void *, int, unsigned long) __asm__("fentry_memset");
void *memcpy(void *, const void *, unsigned long) __asm__("fentry_memcpy");
void *memmove(void *, const void *, unsigned long) __asm__("fentry_memmove");
int memcmp(const void *, const void *, unsigned long) __asm__("fentry_memcmp");

#define load(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define store(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define add(p, v) __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL)
#define clear_bits(p, v) __atomic_fetch_and(p, ~(v), __ATOMIC_ACQ_REL)
/* fence keeps the stores behind it behind those before it. */
#define fence() __atomic_thread_fence(__ATOMIC_RELEASE)
#define swap(p, v) __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL)

/* cas returns 1 if *p was old and is now new. */
#define cas(p, old, new) ({ __typeof__(*(p)) old_ = (old); \
	__atomic_compare_exchange_n(p, &old_, new, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE); })

#endif
