// What C has: each function counts its own calls.
enum { LEAF, RECURSE, CALLS, RUN, ON_THREAD, THROUGH, JUMPS, FALL, HANDLE, HANDLED, WORK, STORM, FUNCTIONS };

extern const char *c_name(int function);
extern long c_count(int function);
extern int calls(int n), on_thread(int n), recurse(int n), through(int n), jumps(int n), storm(int n);
extern void handle_signals(void);
