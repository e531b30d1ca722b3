/* function_graph without a clock: its fast paths once more, with sequence numbers in place of
   times (chunk.c). */
#define NO_CLOCK
#define fentry_graph_enter fentry_order_enter
#define fentry_mcount_graph_enter fentry_mcount_order_enter
#define fentry_graph_exit fentry_order_exit
#include "graph.S"
