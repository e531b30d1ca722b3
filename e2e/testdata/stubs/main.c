/* Calls a function of a library for some tenths of a second, through the linker's stub. */
int stubbed(int x);

__attribute__((noinline)) long calls(void)
{
	long sum = 0;
	for (long i = 0; i < 200000000; i++)
		sum += stubbed(i & 3);
	return sum;
}

int main(void) { return calls() != 300000000; }
