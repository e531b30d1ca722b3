#include "comdat.h"
extern "C" int printf(const char *, ...);
int main()
{
	Shape *s = new Shape(3);
	int n = s->area() + shared(2) + other(3);
	delete s;
	try {
		throw n;
	} catch (int caught) {
		printf("%d\n", caught);
	}
}
