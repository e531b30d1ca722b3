/* The few string and memory functions the runtime needs. */
#include "text.h"

void *memset(void *d, int v, u64 n)
{
	u8 *p = d;
	while (n--)
		*p++ = (u8)v;
	return d;
}

void *memcpy(void *d, const void *s, u64 n)
{
	u8 *p = d;
	const u8 *q = s;
	while (n--)
		*p++ = *q++;
	return d;
}

void *memmove(void *d, const void *s, u64 n)
{
	u8 *p = d;
	const u8 *q = s;
	if (p <= q)
		return memcpy(d, s, n);
	while (n--)
		p[n] = q[n];
	return d;
}

int memcmp(const void *a, const void *b, u64 n)
{
	const u8 *p = a, *q = b;
	for (u64 i = 0; i < n; i++)
		if (p[i] != q[i])
			return p[i] - q[i];
	return 0;
}

hidden u64 length(const char *s)
{
	u64 n = 0;
	while (s[n])
		n++;
	return n;
}

hidden int starts_with(const char *s, const char *prefix)
{
	while (*prefix)
		if (*s++ != *prefix++)
			return 0;
	return 1;
}

hidden int equal(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

/* join writes strings one after another; a null pointer ends them. It returns 0,
   and an empty string, when they do not fit. */
hidden int join(char *d, u64 size, const char *a, const char *b, const char *c)
{
	const char *parts[] = { a, b, c };
	u64 n = 0;
	for (u32 i = 0; i < lengthof(parts) && parts[i]; i++)
		for (const char *s = parts[i]; *s; s++) {
			if (n + 1 >= size) {
				d[0] = 0;
				return 0;
			}
			d[n++] = *s;
		}
	d[n] = 0;
	return 1;
}

/* decimal writes v and returns the end; b holds 21 bytes at least. */
hidden char *decimal(char *b, u64 v)
{
	char t[24];
	u32 i = sizeof t;
	do
		t[--i] = (char)('0' + v % 10);
	while (v /= 10);
	while (i < sizeof t)
		*b++ = t[i++];
	*b = 0;
	return b;
}
