// A library whose function has a frame of ROOM bytes.
#include <string.h>
int through(int (*f)(int))
{
	volatile char b[ROOM];
	memset((char *)b, 1, sizeof b);
	return f(b[3]) + b[ROOM - 1];
}
