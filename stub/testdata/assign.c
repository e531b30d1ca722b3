/* Callbacks and function_trace_stop are assigned between calls of functions that the
   compiler knows all about: nothing that it sees reads these variables. Exits with the
   number of the check that failed. C and C++. */
#include <unistd.h>
#include "fentry.h"

#define NOTRACE __attribute__((no_instrument_function, noinline))

static volatile int calls, entries, returns;
static volatile unsigned long v;

NOTRACE static void on_call(unsigned long frompc, unsigned long selfpc)
{
	(void)frompc, (void)selfpc;
	calls = calls + 1;
}
NOTRACE static int on_entry(struct ftrace_graph_ent *e) { (void)e; entries = entries + 1; return 1; }
NOTRACE static void on_return(struct ftrace_graph_ret *r) { (void)r; returns = returns + 1; }

__attribute__((noinline)) static void work(void) { v = v + 1; }

__attribute__((no_instrument_function)) static void check(int number, int ok)
{
	if (!ok)
		_exit(number);
}

__attribute__((no_instrument_function)) int main(void)
{
	ftrace_trace_function = on_call;
	work();
	ftrace_trace_function = ftrace_stub;
	check(1, calls == 1);
	work();
	check(2, calls == 1);

	ftrace_trace_function = on_call;
	work();
	function_trace_stop = 1;
	work();
	function_trace_stop = 0;
	ftrace_trace_function = ftrace_stub;
	check(3, calls == 2);

	ftrace_graph_entry = on_entry;
	ftrace_graph_return = on_return;
	work();
	ftrace_graph_return = ftrace_stub_graph;
	ftrace_graph_entry = ftrace_graph_entry_stub;
	check(4, entries == 1);
	check(5, returns == 1);
	work();
	check(6, entries == 1 && returns == 1);

	for (int i = 0; i < 3; i++) {
		function_trace_stop = i % 2;
		ftrace_trace_function = on_call;
		work();
		ftrace_trace_function = ftrace_stub;
	}
	function_trace_stop = 0;
	check(7, calls == 4);
	return 0;
}
