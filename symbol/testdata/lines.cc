// Functions over several lines, inlined ones, templates, and a lambda.
#include <cstdio>
#include <string>
#include <vector>

namespace ns {
struct Foo {
	int n;
	explicit Foo(int k) : n(k) {}
	virtual ~Foo() {}
	virtual int bar(int x) const;
};

int Foo::bar(int x) const {
	int s = 0;
	for (int i = 0; i < x; i++)
		s += n * i;
	return s;
}

template <typename T>
__attribute__((noinline)) T twice(T x) {
	return x + x;
}
} // namespace ns

static inline int square(int x) {
	return x * x;
}

__attribute__((noinline)) static int local(int x) {
	return square(x) +
	       square(x + 1);
}

extern "C" int plain(int x) {
	auto f = [x](int y) {
		return x * y;
	};
	return f(3);
}

int main(int argc, char **) {
	ns::Foo f(argc);
	std::vector<std::string> v;
	v.push_back(std::to_string(local(argc)));
	std::printf("%d %d %s %d\n", f.bar(3), ns::twice(argc), v[0].c_str(), plain(2));
	return 0;
}
