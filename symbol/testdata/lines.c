// Built by build.sh into lines.elf, a small image with debug information.
static inline int square(int x) { return x * x; }
__attribute__((noinline)) static int local(int x) {
	return square(x) +
	       square(x + 1);
}
int plain(int x) {
	int s = 0;
	for (int i = 0; i < x; i++)
		s += local(i);
	return s;
}
