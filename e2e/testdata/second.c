// What exec.c runs: counts under names of its own.
//e2e:args 9
#include "count.h"

FN static int second_leaf(int n) { COUNT(); return n & 1; }
FN static int second_work(int n)
{
	COUNT();
	int s = 0;
	for (int i = 0; i < 1000 * n; i++)
		s += second_leaf(i);
	return s;
}
FN static int second_main(char **argv) { COUNT(); return second_work(atoi(argv[1])); }
int main(int argc, char **argv)
{
	COUNT();
	if (argc < 2)
		return 2;
	say("second %s %d\n", argv[1], second_main(argv));
	return 20 + atoi(argv[1]);
}
