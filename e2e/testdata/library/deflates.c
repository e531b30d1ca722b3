/* Compresses and decompresses with libz, by its ABI: no header is needed. */
#include <stdio.h>
#include <string.h>

extern int compress2(unsigned char *, unsigned long *, const unsigned char *, unsigned long, int);
extern int uncompress(unsigned char *, unsigned long *, const unsigned char *, unsigned long);
extern unsigned long crc32(unsigned long, const unsigned char *, unsigned), adler32(unsigned long, const unsigned char *, unsigned);
extern unsigned long compressBound(unsigned long);

static unsigned char text[20000], packed[40000], again[20000];

__attribute__((noinline, noipa)) static int m_checks(int level)
{
	unsigned long n = compressBound(sizeof text), m = sizeof again;
	if (n > sizeof packed || compress2(packed, &n, text, sizeof text, level) || uncompress(again, &m, packed, n))
		return 1;
	printf("%d: %lu %lx %lx\n", level, m, crc32(0, again, sizeof again), adler32(1, again, sizeof again));
	return memcmp(text, again, sizeof text) != 0;
}

int main(void)
{
	unsigned x = 1;
	for (unsigned i = 0; i < sizeof text; i++)
		text[i] = "the quick brown fox "[(x = x * 1103515245 + 12345) >> 16 & 15];
	int bad = 0;
	for (int level = 0; level <= 9; level++)
		bad |= m_checks(level);
	return bad;
}
