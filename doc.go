// Package fentry is ftrace for any program, as a library: it runs a program with its functions traced.
//
//	cmd := exec.Command("./prog", "input.txt")
//	res, err := fentry.Run(ctx, cmd, fentry.Options{Dir: "fentry.data"})
//	if err != nil {
//		return err // the program did not run
//	}
//	t, err := trace.Open(res.Dir)
//	if err != nil {
//		return err
//	}
//	defer t.Close()
//	rows, err := t.Report(trace.ReportOptions{})
//
// [Open] finds out what can be traced in a program, and [Program.Plan] makes a patched copy that traces itself
// wherever it runs.
//
// This package only puts the others together. To do things differently, use them directly: elfio reads and writes ELF
// images, record finds the sites, patch plans and applies changes, session runs a program with a plan applied, trace
// reads what was recorded, names says what its ids mean, symbol knows names and source lines, export writes other
// formats. The command is cmd/fentry.
//
// # What a run does to the process that calls it
//
// The program is under ptrace until its first instruction, and the pool for its events is file descriptor 1000. While
// it runs, [Run] handles the signals that [session.Run] names. So a process has one run at a time; others wait for
// their turn.
//
// # Security
//
// Open reads programs as untrusted input: a malformed one gives an error. Run runs the program with the rights of the
// calling process.
package fentry
