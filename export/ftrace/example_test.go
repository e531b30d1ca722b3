package ftrace_test

import (
	"log"
	"os"
	"path/filepath"

	"github.com/fentry-dev/fentry/export/ftrace"
	"github.com/fentry-dev/fentry/trace"
)

// writeTrace writes a small trace and returns its directory.
func writeTrace() string {
	dir, err := os.MkdirTemp("", "ftrace")
	if err != nil {
		log.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, trace.EventsFile))
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	w, err := trace.NewWriter(f, trace.Header{Counter: 1000, CounterHz: 1e9})
	if err != nil {
		log.Fatal(err)
	}
	k := w.Task(trace.TaskID{PID: 4711, TID: 4711, Image: 1, Comm: "worker"})
	k.Enter(1000, 1)
	k.Enter(2000, 2)
	k.Exit(4047, 2)
	k.Exit(154809, 1)
	if err := k.Flush(); err != nil {
		log.Fatal(err)
	}
	sym := "1\t401000\t40\t401000\tplain\tmain_loop\n2\t401040\t40\t401040\tplain\tread_block\n"
	if err := os.WriteFile(filepath.Join(dir, trace.ImageID(1).String()+trace.SymExt), []byte(sym), 0o666); err != nil {
		log.Fatal(err)
	}
	return dir
}

func ExampleGraph() {
	dir := writeTrace()
	defer os.RemoveAll(dir)
	t, err := trace.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	g := ftrace.NewGraph(os.Stdout, t, ftrace.GraphOptions{})
	if err := t.Walk(trace.WalkOptions{}, g.Event); err != nil {
		log.Fatal(err)
	}
	if err := g.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// # tracer: function_graph
	// #
	// # CPU  DURATION                  FUNCTION CALLS
	// # |     |   |                     |   |   |   |
	//  0)               |  main_loop() {
	//  0)   2.047 us    |    read_block();
	//  0) ! 153.809 us  |  }
}

func ExampleFunction() {
	dir := writeTrace()
	defer os.RemoveAll(dir)
	t, err := trace.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	f := ftrace.NewFunction(os.Stdout, t, ftrace.FunctionOptions{NoHeader: true, SinceStart: true})
	if err := t.Walk(trace.WalkOptions{}, f.Event); err != nil {
		log.Fatal(err)
	}
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	//           worker-4711    [000] .....     0.000000: main_loop <-0
	//           worker-4711    [000] .....     0.000001: read_block <-main_loop
}
