/* Smallest program with something of everything: code in several sections, initialised and zeroed data, a pointer
   that needs a relocation, a thread-local variable, a weak reference and unwind information. */
extern int missing(void) __attribute__((weak));
int data = 3, zeroed[50];
int *pointer = &data;
static __thread int tls = 4;
__attribute__((noinline, visibility("default"))) int function(int n) { return n + data + zeroed[n & 31] + *pointer; }
__attribute__((noinline, visibility("default"), section(".text.other"))) int other(int n) { return missing ? missing() : function(n) * 2; }
int tls_value(void) { return tls; }
void _start(void) { function(other(1)); for (;;) ; }
