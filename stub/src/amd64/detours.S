/* The routines that a recorder can lead to others while the process runs (change.c), or the
   thunks of some functions, as they call them: pairs of distances from the table. */
#include "layout.h"

	.macro DETOUR from, to
	.long	\from - fentry_detours, \to - fentry_detours
	.endm

	.section .rodata, "a"
	.p2align 3
	.globl	fentry_detours
	.hidden	fentry_detours
	.type	fentry_detours, @object
fentry_detours:
	.org	fentry_detours + 8 * DETOUR_GRAPH_ENTER
	DETOUR	fentry_graph_enter, fentry_opt_enter
	.org	fentry_detours + 8 * DETOUR_MCOUNT_GRAPH_ENTER
	DETOUR	fentry_mcount_graph_enter, fentry_mcount_opt_enter
	.org	fentry_detours + 8 * DETOUR_GRAPH_EXIT
	DETOUR	fentry_graph_exit, fentry_opt_exit
	.org	fentry_detours + 8 * DETOUR_GRAPH_ACT
	DETOUR	fentry_graph_enter, fentry_act_enter
	.org	fentry_detours + 8 * DETOUR_MCOUNT_GRAPH_ACT
	DETOUR	fentry_mcount_graph_enter, fentry_mcount_act_enter
	.org	fentry_detours + 8 * DETOUR_GRAPH_ACT_EXIT
	DETOUR	fentry_graph_exit, fentry_act_exit
	.org	fentry_detours + 8 * DETOUR_OPT_ACT
	DETOUR	fentry_opt_enter, fentry_act_enter
	.org	fentry_detours + 8 * DETOUR_MCOUNT_OPT_ACT
	DETOUR	fentry_mcount_opt_enter, fentry_mcount_act_enter
	.org	fentry_detours + 8 * DETOUR_OPT_ACT_EXIT
	DETOUR	fentry_opt_exit, fentry_act_exit
	.org	fentry_detours + 8 * DETOUR_GRAPH_FLAT
	DETOUR	fentry_graph_enter, fentry_flat_enter
	.org	fentry_detours + 8 * DETOUR_MCOUNT_GRAPH_FLAT
	DETOUR	fentry_mcount_graph_enter, fentry_mcount_flat_enter
	.org	fentry_detours + 8 * DETOUR_OPT_FLAT
	DETOUR	fentry_opt_enter, fentry_flat_enter
	.org	fentry_detours + 8 * DETOUR_MCOUNT_OPT_FLAT
	DETOUR	fentry_mcount_opt_enter, fentry_mcount_flat_enter
	.org	fentry_detours + 8 * DETOUR_ORDER_ACT
	DETOUR	fentry_order_enter, fentry_act_enter
	.org	fentry_detours + 8 * DETOUR_MCOUNT_ORDER_ACT
	DETOUR	fentry_mcount_order_enter, fentry_mcount_act_enter
	.org	fentry_detours + 8 * DETOUR_ORDER_ACT_EXIT
	DETOUR	fentry_order_exit, fentry_act_exit
	.org	fentry_detours + 8 * DETOUR_ORDER_FLAT
	DETOUR	fentry_order_enter, fentry_flat_order_enter
	.org	fentry_detours + 8 * DETOUR_MCOUNT_ORDER_FLAT
	DETOUR	fentry_mcount_order_enter, fentry_mcount_flat_order_enter
	.org	fentry_detours + 8 * DETOUR_FLAT_ACT
	DETOUR	fentry_flat_enter, fentry_act_enter
	.org	fentry_detours + 8 * DETOUR_MCOUNT_FLAT_ACT
	DETOUR	fentry_mcount_flat_enter, fentry_mcount_act_enter
	.org	fentry_detours + 8 * DETOUR_FLAT_ACT_EXIT
	DETOUR	fentry_graph_exit, fentry_act_exit
	.org	fentry_detours + 8 * DETOUR_FLAT_GRAPH
	DETOUR	fentry_flat_enter, fentry_graph_enter
	.org	fentry_detours + 8 * DETOUR_MCOUNT_FLAT_GRAPH
	DETOUR	fentry_mcount_flat_enter, fentry_mcount_graph_enter
	.org	fentry_detours + 8 * DETOUR_FLAT_OPT
	DETOUR	fentry_flat_enter, fentry_opt_enter
	.org	fentry_detours + 8 * DETOUR_MCOUNT_FLAT_OPT
	DETOUR	fentry_mcount_flat_enter, fentry_mcount_opt_enter
	.org	fentry_detours + 8 * DETOUR_COUNT
	.size	fentry_detours, . - fentry_detours
	.section .note.GNU-stack, "", @progbits
