// Functions that appear in several objects and are merged by the linker, several symbols for one address, exceptions.
#include <stdexcept>
#include <string>
#include <vector>

namespace ns {
template <typename T> __attribute__((noinline)) T twice(T x) { return x + x; }

struct Base {
	int n;
	explicit Base(int k);
	virtual ~Base();
	virtual int value() const { return n; }
};
Base::Base(int k) : n(k) {}
Base::~Base() {}

struct Derived : virtual Base {
	Derived() : Base(3) {}
	int value() const override { return n * 2; }
};

__attribute__((noinline)) int thrower(int x) {
	if (x > 1000)
		throw std::runtime_error("no");
	return x;
}
} // namespace ns

static std::string text = std::string("static ") + "constructor";

int main(int argc, char **argv) {
	std::vector<int> v;
	v.push_back(argc);
	ns::Derived d;
	int r = ns::twice(argc) + (int)ns::twice(1.5) + d.value() + v[0] + (int)text.size();
	try {
		r += ns::thrower(r);
	} catch (std::exception &) {
		r = 0;
	}
	auto f = [&](int k) __attribute__((noinline)) { return k + r; };
	return f(1) == 0;
}
