// The library self.c finds beside itself.
int origin_value(int (*f)(int));
int origin_value(int (*f)(int)) { return f(20) + f(1); }
