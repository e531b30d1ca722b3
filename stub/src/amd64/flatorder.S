/* The same without a clock, see order.S. Both events have the number of the first one's slot. */
#define NO_CLOCK
#define fentry_flat_enter fentry_flat_order_enter
#define fentry_mcount_flat_enter fentry_mcount_flat_order_enter
#include "flat.S"
