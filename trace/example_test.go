package trace_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/fentry-dev/fentry/trace"
)

// writeTrace writes a small trace, as a recorder would, and returns its directory.
func writeTrace() string {
	dir, err := os.MkdirTemp("", "trace")
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
	image := trace.Image{ID: 0xf00d, Path: "/usr/bin/prog", Sites: 3}
	w.WriteImage(image)
	k := w.Task(trace.TaskID{PID: 4711, TID: 4711, Image: image.ID, Comm: "prog"})
	k.Enter(1000, 1)
	for i := uint64(0); i < 3; i++ {
		k.Enter(2000+5000*i, 2)
		k.Enter(2500+5000*i, 3)
		k.Exit(4000+5000*i, 3)
		k.Exit(4500+5000*i, 2)
	}
	k.Exit(20000, 1)
	if err := k.Flush(); err != nil {
		log.Fatal(err)
	}
	sym := "# path: /usr/bin/prog\n" +
		"1\t401000\t40\t401000\tplain\tmain\n" +
		"2\t401040\t40\t401040\tplain\tparse\n" +
		"3\t401080\t40\t401080\tplain\tread\n"
	if err := os.WriteFile(filepath.Join(dir, image.ID.String()+trace.SymExt), []byte(sym), 0o666); err != nil {
		log.Fatal(err)
	}
	return dir
}

func ExampleTrace_Report() {
	dir := writeTrace()
	defer os.RemoveAll(dir)
	t, err := trace.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	rows, err := t.Report(trace.ReportOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range rows {
		fmt.Printf("%-6s %d calls, %5d ns, of which %5d in itself\n", r.Name, r.Calls, r.Total, r.Self)
	}
	// Output:
	// main   1 calls, 19000 ns, of which 11500 in itself
	// parse  3 calls,  7500 ns, of which  3000 in itself
	// read   3 calls,  4500 ns, of which  4500 in itself
}

func ExampleTrace_Graph() {
	dir := writeTrace()
	defer os.RemoveAll(dir)
	t, err := trace.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	root, err := t.Graph(trace.GraphOptions{})
	if err != nil {
		log.Fatal(err)
	}
	var show func(n *trace.Node, depth int)
	show = func(n *trace.Node, depth int) {
		for _, c := range n.Children {
			fmt.Printf("%s%s %d\n", strings.Repeat("  ", depth), c.Name, c.Calls)
			show(c, depth+1)
		}
	}
	show(root, 0)
	// Output:
	// main 1
	//   parse 3
	//     read 3
}

func ExampleTrace_Walk() {
	dir := writeTrace()
	defer os.RemoveAll(dir)
	t, err := trace.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	// The calls that read is called by, with the longest it took from there.
	longest := map[string]int64{}
	err = t.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if ev.Kind == trace.Exit && t.Name(ev.Func) == "read" {
			caller := t.Name(ev.Caller)
			longest[caller] = max(longest[caller], ev.Dur)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(longest)
	// Output: map[parse:1500]
}
