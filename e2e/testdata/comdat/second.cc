#include "comdat.h"
int other(int x)
{
	Shape s(x);
	int sum = s.area();
	for (int i = 0; i < x; i++)
		sum += shared(i);
	return sum;
}
