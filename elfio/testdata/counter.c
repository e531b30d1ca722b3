/* An object that can be injected: position-independent, zeroed memory only. */
static int calls;
static const int step[2] = {1, 2};
int count(int n) { return calls += step[n & 1]; }
int twice(int n) { return count(n) + count(n); }
