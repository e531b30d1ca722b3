// Package arguments knows the arguments and results of functions: of which types they are, where a machine's calling
// convention puts them, what a tracer has to read to know them, and how they are shown.
//
//	fs, err := arguments.Functions(data, machine, addresses, name)    // types from debug information
//	s, err := arguments.ParseSpec("parse_*@arg1/s")                   // or from the user
//	c, err := arguments.Plan(fs[addr], machine, what, s.Items)        // what to read at the entry and at the exit
//	fmt.Printf("(%s)", c.AppendArguments(nil, words, memory))         // ("abc", 3, RED|BOLD)
//
// Where a value is follows from its type alone, by the psABI for x86-64 and AAPCS64: debug information says where it
// is in the function's body, which at -O0 is a place that the function is still to write, and elsewhere agrees with
// the convention. What does not follow from it, such as the parameters of clones that compilers have made for
// themselves, is unknown, and shown so.
//
// It knows nothing about traces, processes or files.
//
// # Security
//
// Debug information, specs and what was recorded can be anything: what does not fit gives an error or is shown as
// unknown, depth and size are bounded, and text comes out quoted, so it cannot control a terminal.
package arguments
