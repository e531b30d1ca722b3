/* Functions that both files have: the linker keeps one of each, and drops the other with its section group. */
template <class T> __attribute__((noinline)) T twice(T x) { return x + x; }
inline __attribute__((noinline)) int shared(int x) { return twice(x) + 1; }
struct Shape {
	int side;
	explicit Shape(int s) : side(s) {}
	virtual ~Shape() {}
	virtual int area() const { return twice(side) * side / 2; }
};
int other(int);
