package ftrace

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/trace"
)

const testImage = trace.ImageID(0xabcd)

// build makes a trace whose functions have the given names, ids from 1. One
// tick is one ns; the trace starts at counter 1000 and CLOCK_MONOTONIC 12 s.
func build(t testing.TB, names string, fn func(w *trace.Writer)) *trace.Trace {
	t.Helper()
	dir := t.TempDir()
	var b bytes.Buffer
	w, err := trace.NewWriter(&b, trace.Header{Counter: 1000, Monotonic: 12e9, CounterHz: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteImage(trace.Image{ID: testImage, Path: "/bin/worker"}); err != nil {
		t.Fatal(err)
	}
	fn(w)
	if err := os.WriteFile(filepath.Join(dir, trace.EventsFile), b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	var sym strings.Builder
	for i, n := range strings.Fields(names) {
		fmt.Fprintf(&sym, "%d\t%x\t20\t%x\tfentry-call\t%s\n", i+1, 0x401000+64*i, 0x401004+64*i, n)
	}
	if err := os.WriteFile(filepath.Join(dir, testImage.String()+trace.SymExt), []byte(sym.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	if len(tr.Problems) > 0 {
		t.Fatal(tr.Problems)
	}
	return tr
}

func graphText(t testing.TB, tr *trace.Trace, o GraphOptions) string {
	t.Helper()
	var b bytes.Buffer
	g := NewGraph(&b, tr, o)
	if err := tr.Walk(trace.WalkOptions{}, g.Event); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func check(t *testing.T, have, want string) {
	t.Helper()
	want = strings.TrimPrefix(want, "\n")
	if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(have, "\n")); d != "" {
		t.Error(d)
	}
}

// worker is one task with one id per function: main_loop 1, read_block 2.
var worker = trace.TaskID{PID: 4711, TID: 4711, Image: testImage, Comm: "worker"}

// TestGraph is the example of the kernel's documentation of the format.
func TestGraph(t *testing.T) {
	tr := build(t, "main_loop read_block", func(w *trace.Writer) {
		k := w.Task(worker)
		k.Enter(1000, 1)
		k.Enter(2000, 2)
		k.Exit(4047, 2)
		k.Exit(154809, 1)
		k.Flush()
	})
	check(t, graphText(t, tr, GraphOptions{}), `
# tracer: function_graph
#
# CPU  DURATION                  FUNCTION CALLS
# |     |   |                     |   |   |   |
 0)               |  main_loop() {
 0)   2.047 us    |    read_block();
 0) ! 153.809 us  |  }
`)
}

// TestNumbers covers every digit boundary of the duration column.
func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		ns   int64
		want string
	}{
		{0, "  0.000 us    |  "},
		{1, "  0.001 us    |  "},
		{208, "  0.208 us    |  "},
		{999, "  0.999 us    |  "},
		{1_000, "  1.000 us    |  "},
		{9_999, "  9.999 us    |  "},
		{10_000, "  10.000 us   |  "},
		{10_001, "+ 10.001 us   |  "},
		{99_999, "+ 99.999 us   |  "},
		{100_000, "+ 100.000 us  |  "},
		{100_001, "! 100.001 us  |  "},
		{999_999, "! 999.999 us  |  "},
		{1_000_000, "! 1000.000 us |  "},
		{1_000_001, "# 1000.001 us |  "},
		{1_250_017, "# 1250.017 us |  "},
		{9_999_999, "# 9999.999 us |  "},
		{10_000_000, "# 10000.00 us |  "},
		{10_000_001, "* 10000.00 us |  "},
		{20_481_339, "* 20481.33 us |  "},
		{99_999_999, "* 99999.99 us |  "},
		{100_000_000, "* 100000.0 us |  "},
		{100_000_001, "@ 100000.0 us |  "},
		{204_800_799, "@ 204800.7 us |  "},
		{999_999_999, "@ 999999.9 us |  "},
		{1_000_000_000, "@ 1000000 us  |  "},
		{1_000_000_001, "$ 1000000 us  |  "},
		{2_048_003_999, "$ 2048003 us  |  "},
		{9_999_999_999, "$ 9999999 us  |  "},
		{10_000_000_000, "$ 10000000 us |  "},
		{100_000_000_000, "$ 100000000 us |  "}, // wider than the column, as in the kernel
	} {
		if have := string((&Graph{}).duration(nil, c.ns)); have != c.want {
			t.Errorf("%d ns: %q, want %q", c.ns, have, c.want)
		}
		plain := "  " + c.want[2:]
		if have := string((&Graph{opt: GraphOptions{NoOverhead: true}}).duration(nil, c.ns)); have != plain {
			t.Errorf("%d ns without marks: %q, want %q", c.ns, have, plain)
		}
	}
	if have := (&Graph{opt: GraphOptions{NoDuration: true}}).duration(nil, 5); len(have) != 0 {
		t.Errorf("no duration: %q", have)
	}
}

// twoTasks has two threads, a tail call, a longjmp, a thread that is killed, and notes.
func twoTasks(t *testing.T) *trace.Trace {
	other := trace.TaskID{PID: 4711, TID: 4712, Image: testImage, Comm: "long-name-of-it"}
	return build(t, "main_loop read_block parse", func(w *trace.Writer) {
		k, o := w.Task(worker), w.Task(other)
		k.Enter(1000, 1)
		k.Enter(2000, 2)
		k.Mark(3000, 42, "")
		k.Mark(3000, 0, "half\tdone\n")
		k.Mark(3000, 7, "x")
		k.Exit(13001, 2)
		k.Enter(13001, 3)
		k.Exit(14000, 3)
		k.Enter(15000, 2)
		k.Enter(16000, 3)
		k.Resync(20000, 2)
		k.Exit(154809, 1)
		o.Exit(1500, 2)
		o.Enter(2500, 3)
		o.Lost(2600, 7)
		o.Enter(2700, 2)
		o.Exit(2800, 2)
		o.Comm(2900, "renamed")
		o.Stack(3100, 1)
		o.Enter(3200, 1)
		o.End(5000)
		k.Flush()
		o.Flush()
	})
}

// TestGraphTwoTasks has all kinds of lines.
func TestGraphTwoTasks(t *testing.T) {
	check(t, graphText(t, twoTasks(t), GraphOptions{}), `
# tracer: function_graph
#
# CPU  DURATION                  FUNCTION CALLS
# |     |   |                     |   |   |   |
# 0) worker-4711
 0)               |  main_loop() {
# 1) long-name-of-it-4712 of process 4711
 1)               |  } /* read_block */
 0)               |    read_block() {
 1)               |  parse() {
CPU:1 [LOST 7 EVENTS]
 1)   0.100 us    |    read_block();
 1)               |  /* name: renamed */
 0)               |      /* mark 42 */
 0)               |      /* half?done */
 0)               |      /* x (7) */
 1)               |  /* stack 1 */
 1)               |  main_loop() {
 1)   0.000 us    |  } /* main_loop, unfinished */
 1)   0.700 us    |  } /* parse, unfinished */
 1)               |  /* thread ends */
 0) + 11.001 us   |    }
 0)   0.999 us    |    parse();
 0)               |    read_block() {
 0)               |      parse() {
 0)   4.000 us    |      } /* parse, unwound */
 0)   5.000 us    |    } /* read_block, unwound */
 0) ! 153.809 us  |  }
`)
}

// TestGraphOptions covers the columns.
func TestGraphOptions(t *testing.T) {
	tr := twoTasks(t)
	check(t, graphText(t, tr, GraphOptions{AbsTime: true, Proc: true, Tail: true, NoOverhead: true, NoNotes: true}), `
# tracer: function_graph
#
#     TIME        CPU  TASK/PID               DURATION                  FUNCTION CALLS
#      |          |     |    |                 |   |                     |   |   |   |
# 0) worker-4711
   12.000000 |   0)     worker-4711      |               |  main_loop() {
# 1) long-name-of-it-4712 of process 4711
   12.000000 |   1) long-name-of-it-4712 |               |  } /* read_block */
   12.000001 |   0)     worker-4711      |               |    read_block() {
   12.000001 |   1) long-name-of-it-4712 |               |  parse() {
CPU:1 [LOST 7 EVENTS]
   12.000001 |   1) long-name-of-it-4712 |   0.100 us    |    read_block();
   12.000002 |   1)     renamed-4712     |               |  main_loop() {
   12.000002 |   1)     renamed-4712     |   0.000 us    |  } /* main_loop, unfinished */
   12.000002 |   1)     renamed-4712     |   0.700 us    |  } /* parse, unfinished */
   12.000012 |   0)     worker-4711      |   11.001 us   |    } /* read_block */
   12.000012 |   0)     worker-4711      |   0.999 us    |    parse();
   12.000014 |   0)     worker-4711      |               |    read_block() {
   12.000015 |   0)     worker-4711      |               |      parse() {
   12.000019 |   0)     worker-4711      |   4.000 us    |      } /* parse, unwound */
   12.000019 |   0)     worker-4711      |   5.000 us    |    } /* read_block, unwound */
   12.000153 |   0)     worker-4711      |   153.809 us  |  } /* main_loop */
`)
	check(t, graphText(t, tr, GraphOptions{AbsTime: true, SinceStart: true, NoCPU: true, NoDuration: true, NoNotes: true, NoHeader: true}), `
    0.000000 |  main_loop() {
    0.000000 |  } /* read_block */
    0.000001 |    read_block() {
    0.000001 |  parse() {
CPU:1 [LOST 7 EVENTS]
    0.000001 |    read_block();
    0.000002 |  main_loop() {
    0.000002 |  } /* main_loop, unfinished */
    0.000002 |  } /* parse, unfinished */
    0.000012 |    }
    0.000012 |    parse();
    0.000014 |    read_block() {
    0.000015 |      parse() {
    0.000019 |      } /* parse, unwound */
    0.000019 |    } /* read_block, unwound */
    0.000153 |  }
`)
}

// TestGraphOneCPU shows the lines between tasks. The names at a depth are
// remembered for the processor, whatever task it runs: f's is forgotten.
// TestGraphCommand has the arguments and titles of processes: in the line before a
// task's first one, where a program starts, and in a column, as they were then.
func TestGraphCommand(t *testing.T) {
	server := trace.TaskID{PID: 9, TID: 9, Key: 9, Image: testImage, Comm: "server"}
	child := trace.TaskID{PID: 10, TID: 10, Key: 10, Image: testImage, Comm: "server", ParentPID: 9, ParentTID: 9}
	tr := build(t, "f", func(w *trace.Writer) {
		args := []string{"./server", "-c", "a file\x1b[2J"}
		if err := w.WriteProgram(server, 900, trace.Image{ID: testImage, Command: args, Parent: 8}); err != nil {
			t.Fatal(err)
		}
		k, c := w.Task(server), w.Task(child)
		k.Start(1000)
		k.Enter(1100, 1)
		k.Exit(1900, 1)
		k.Enter(1950, 1)
		c.Fork(2000)
		c.Enter(2100, 1)
		c.Exit(2200, 1)
		c.Enter(3000, 1)
		c.Exit(3100, 1)
		k.Flush()
		c.Flush()
	})
	forked := tr.Tasks[1].Process
	forked.Titles = []trace.Title{{Time: tr.Clock.Time(2900), Text: "server: a title that is too long for its column"}}
	check(t, graphText(t, tr, GraphOptions{Command: true}), `
# tracer: function_graph
#
# CPU  COMMAND                          DURATION                  FUNCTION CALLS
# |       |                              |   |                     |   |   |   |
# 0) server-9: ./server -c 'a file?[2J'
 0) ./server -c 'a file?[2J'       |               |  /* program starts: ./server -c 'a file?[2J' */
 0) ./server -c 'a file?[2J'       |   0.800 us    |  f();
 0) ./server -c 'a file?[2J'       |               |  f() {
 0) ./server -c 'a file?[2J'       |   0.000 us    |  } /* f, unfinished */
# 1) server-10: ./server -c 'a file?[2J'
 1) ./server -c 'a file?[2J'       |               |  /* forked from 9 */
 1) ./server -c 'a file?[2J'       |   0.100 us    |    f();
 1) server: a title that is too... |   0.100 us    |    f();
 1) server: a title that is too... |   1.100 us    |  } /* f, unfinished */
`)
}

func TestGraphOneCPU(t *testing.T) {
	tr := build(t, "f g", func(w *trace.Writer) {
		a, b := w.Task(worker), w.Task(trace.TaskID{PID: 9, TID: 1234567, Image: testImage, Comm: "b"})
		a.Enter(1000, 1)
		a.Enter(1100, 2)
		a.Exit(1200, 2)
		b.Enter(2000, 2)
		b.Exit(2100, 2)
		a.Exit(3000, 1)
		a.Flush()
		b.Flush()
	})
	check(t, graphText(t, tr, GraphOptions{OneCPU: true}), `
# tracer: function_graph
#
# CPU  DURATION                  FUNCTION CALLS
# |     |   |                     |   |   |   |
 0)               |  f() {
 0)   0.100 us    |    g();
 ------------------------------------------
 0)  worker-4711   =>   b-1234567   
 ------------------------------------------

 0)   0.100 us    |  g();
 ------------------------------------------
 0)   b-1234567    =>  worker-4711  
 ------------------------------------------

 0)   2.000 us    |  } /* f */
`)
}

// TestGraphDeep checks that names are remembered for 50 levels, as in the kernel,
// and indentation goes on.
func TestGraphDeep(t *testing.T) {
	tr := build(t, "f", func(w *trace.Writer) {
		k := w.Task(worker)
		for i := range uint64(60) {
			k.Enter(1000+i, 1)
		}
		k.Mark(1100, 1, "")
		for i := range uint64(60) {
			k.Exit(2000+i, 1)
		}
		k.Flush()
	})
	lines := strings.Split(graphText(t, tr, GraphOptions{NoHeader: true}), "\n")
	for i := range 60 {
		in := strings.Repeat("  ", i)
		if want := " 0)               |  " + in + "f() {"; lines[i] != want {
			t.Fatalf("line %d: %q, want %q", i, lines[i], want)
		}
		if have := lines[120-i]; !strings.HasSuffix(have, "|  "+in+"}") {
			t.Fatalf("line %d: %q, want the brace at %d", 120-i, have, i)
		}
	}
	if want := "|  " + strings.Repeat("  ", 60) + "/* mark 1 */"; !strings.HasSuffix(lines[60], want) {
		t.Errorf("%q, want %q", lines[60], want)
	}
}

// TestGraphVeryDeep checks that the text of a deep recursion stays printable.
func TestGraphVeryDeep(t *testing.T) {
	const n = 20_000
	tr := build(t, "f", func(w *trace.Writer) {
		k := w.Task(worker)
		for i := range uint64(n) {
			k.Enter(1000+i, 1)
		}
		for i := range uint64(n) {
			k.Exit(30_000+i, 1)
		}
		k.Flush()
	})
	have := graphText(t, tr, GraphOptions{NoHeader: true})
	if lines := strings.Count(have, "\n"); lines != 2*n-1 || len(have) > lines*(2*maxIndent+40) {
		t.Errorf("%d lines, %d bytes", lines, len(have))
	}
	if strings.Count(have, "{") != n-1 || strings.Count(have, "}") != n-1 {
		t.Error("braces do not match")
	}
}

// TestComment checks what is written behind calls.
func TestComment(t *testing.T) {
	tr := build(t, "f g", func(w *trace.Writer) {
		k := w.Task(worker)
		k.Enter(1000, 1)
		k.Enter(1100, 2)
		k.Exit(1200, 2)
		k.Exit(1300, 1)
		k.Flush()
	})
	comment := func(id trace.FuncID) string {
		if id.ID == 1 {
			return "f.c:3"
		}
		return ""
	}
	check(t, graphText(t, tr, GraphOptions{NoHeader: true, Comment: comment}), `
 0)               |  f() { /* f.c:3 */
 0)   0.100 us    |    g();
 0)   0.300 us    |  }
`)
	check(t, functionText(t, tr, FunctionOptions{NoHeader: true, Comment: comment}), `
          worker-4711    [000] .....    12.000000: f <-0 /* f.c:3 */
          worker-4711    [000] .....    12.000000: g <-f
`)
}

// TestEntriesOnly checks function_graph text of a trace that has no exits.
func TestEntriesOnly(t *testing.T) {
	tr := build(t, "f g", func(w *trace.Writer) {
		if err := w.WriteImage(trace.Image{ID: testImage, Mode: "function"}); err != nil {
			t.Fatal(err)
		}
		k := w.Task(worker)
		k.Enter(1000, 1)
		k.Enter(1100, 2)
		k.Flush()
	})
	check(t, graphText(t, tr, GraphOptions{NoHeader: true}), `
 0)               |  f();
 0)               |  g();
`)
	check(t, functionText(t, tr, FunctionOptions{NoHeader: true}), `
          worker-4711    [000] .....    12.000000: f
          worker-4711    [000] .....    12.000000: g
`)
}

// TestGraphManyTasks checks that the column grows with the number of tasks.
func TestGraphManyTasks(t *testing.T) {
	tr := build(t, "f", func(w *trace.Writer) {
		for i := range 101 {
			id := worker
			id.TID += i
			k := w.Task(id)
			k.Enter(uint64(1000+i), 1)
			k.Exit(uint64(1200+i), 1)
			k.Flush()
		}
	})
	have := graphText(t, tr, GraphOptions{})
	for _, want := range []string{"\n   0)   0.200 us    |  f();\n", "\n 100)   0.200 us    |  f();\n", "# 100) worker-4811 of process 4711\n"} {
		if !strings.Contains(have, want) {
			t.Errorf("no %q in\n%s", want, have)
		}
	}
}

// TestGraphColor checks that only names are coloured.
func TestGraphColor(t *testing.T) {
	tr := build(t, "f g", func(w *trace.Writer) {
		k := w.Task(worker)
		k.Enter(1000, 1)
		k.Enter(2000, 2)
		k.Exit(5_002_000, 2)
		k.Exit(5_003_000, 1)
		k.Flush()
	})
	color := func(ns int64) string {
		if ns > 1_000_000 {
			return "\x1b[31m"
		}
		return ""
	}
	check(t, graphText(t, tr, GraphOptions{NoHeader: true, Color: color}), `
 0)               |  f() {
 0) # 5000.000 us |    `+"\x1b[31mg\x1b[0m"+`();
 0) # 5002.000 us |  }
`)
}

// What did not return is coloured.
func TestGraphColorEnd(t *testing.T) {
	tr := build(t, "f g h", func(w *trace.Writer) {
		k := w.Task(worker)
		k.Enter(1000, 1)
		k.Enter(2000, 2)
		k.Enter(3000, 3)
		k.Resync(4000, 1)
		k.Exit(5000, 2)
		k.Flush()
	})
	text := graphText(t, tr, GraphOptions{NoHeader: true, ColorEnd: "\x1b[33m"})
	for _, want := range []string{"/* h, \x1b[33munwound\x1b[0m */", "/* f, \x1b[33munfinished\x1b[0m */"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestControlCharacters checks that names from the program cannot write to the
// terminal.
func TestControlCharacters(t *testing.T) {
	id := worker
	id.Comm = "a\x1b[2Jb\n"
	tr := build(t, "f", func(w *trace.Writer) {
		k := w.Task(id)
		k.Enter(1000, 1)
		k.Comm(1100, "x\ry")
		k.Exit(1200, 1)
		k.Flush()
	})
	for _, s := range []string{graphText(t, tr, GraphOptions{Proc: true}), functionText(t, tr, FunctionOptions{})} {
		if strings.ContainsAny(s, "\x1b\r") {
			t.Errorf("%q", s)
		}
	}
}

// TestGraphGoroutines: the column of tasks says which goroutine it is, and which thread runs it then.
func TestGraphGoroutines(t *testing.T) {
	const seven = 1<<63 | 7
	dir := t.TempDir()
	var b bytes.Buffer
	w, err := trace.NewWriter(&b, trace.Header{Counter: 1000, Monotonic: 12e9, CounterHz: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteImage(trace.Image{ID: testImage, Path: "/bin/server", Stacks: trace.StacksGoroutines}); err != nil {
		t.Fatal(err)
	}
	one := w.Task(trace.TaskID{PID: 4711, TID: 4711, Image: testImage, Comm: "server"})
	two := w.Task(trace.TaskID{PID: 4711, TID: 10002, Image: testImage, Comm: "server"})
	one.Enter(1001, 3)
	one.Exit(1002, 3)
	one.Stack(1003, seven)
	one.Enter(1004, 1)
	one.Enter(1005, 2)
	one.Exit(1006, 2)
	two.Stack(2003, seven)
	two.Exit(2006, 1)
	for _, k := range []*trace.TaskWriter{one, two} {
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, trace.EventsFile), b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	got := graphText(t, tr, GraphOptions{Proc: true, NoHeader: true, NoCPU: true})
	want := []string{
		"  server-4711   |   0.001 us    |  server:#3();",
		"server-g7/4711  |               |  server:#1() {",
		"server-g7/4711  |   0.001 us    |    server:#2();",
		"server-g7/10002 |   1.002 us    |  }",
		"",
	}
	if d := cmp.Diff(want, strings.Split(got, "\n")); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
