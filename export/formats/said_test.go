package formats

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/sample"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/names"
	"github.com/fentry-dev/fentry/trace"
)

// TestSaid: what is known of calls beside their times is in the formats that have a place for it, with ends of calls
// that are one event and that are two; the others of single calls say that they leave it out.
func TestSaid(t *testing.T) {
	tr := saidTrace(t)
	for _, f := range All {
		if f.Merged {
			continue // of calls that are counted together
		}
		var out bytes.Buffer
		sum, err := write(t, &f, &out, export.From(tr))
		if err != nil {
			t.Fatal(f.Name, err)
		}
		left := map[string]uint64{}
		for _, l := range sum.Left {
			left[l.What] = l.Count
		}
		var inside []string
		wantLeft := map[string]uint64{}
		switch f.Name {
		case "chrome":
			inside = []string{
				`"name":"f","args":{"s":null,"n":-1}}`, `"args":{"retval":7}}`,
				`"ph":"X"`, `"name":"f","args":{"s":"\u003c0x10\u003e","n":3,"retval":8}}`,
				`"name":"sys_close","args":{"fd":9,"retval":"-1 EBADF (Bad file descriptor)"}}`,
				`"name":"signal SIGUSR1"`, `"name":"sys_umask","args":{"mask":"077","retval":"022"}}`,
				`"name":"backtrace: f","args":{"backtrace":["f","0x2001","0x1200"],"end":"depth"}}`,
			}
		case "perfetto":
			inside = []string{"n", "-1", "NULL", "<0x10>", "retval", "8", "-1 EBADF (Bad file descriptor)", "signal SIGUSR1",
				"f <- 0x2001 <- 0x1200 (depth)"}
		case "csv":
			inside = []string{`,"s=NULL, n=-1",7`, `,"s=<0x10>, n=3",8`, `fd=9,-1 EBADF (Bad file descriptor)`}
			wantLeft = map[string]uint64{"signals": 1, "backtraces": 1, "marks": 1}
		case "trace.dat":
			inside = []string{"f(s=NULL, n=-1)\x00", "f = 7\x00", "f(s=<0x10>, n=3)\x00", "f = 8\x00", "sys_close(fd=9)\x00",
				"sys_close = -1 EBADF (Bad file descriptor)\x00", "signal SIGUSR1\x00",
				"backtrace: f <- 0x2001 <- 0x1200 (depth)\x00"}
		case "ctf":
		case "speedscope", "parquet", "csv-tables":
			wantLeft = map[string]uint64{"arguments and results": 8, "signals": 1, "backtraces": 1, "marks": 1}
		case "uftrace":
			// Those of system calls have no place, as they themselves have none.
			wantLeft = map[string]uint64{"arguments and results": 4, "signals": 1, "backtraces": 1, "marks": 1,
				"system calls": 2}
		}
		for _, s := range inside {
			text := out.String()
			if !strings.Contains(text, s) && !strings.Contains(text, strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(s)) {
				t.Errorf("%s: no %s in\n%s", f.Name, s, text)
			}
		}
		if f.Name == "chrome" && !json.Valid(out.Bytes()) {
			t.Errorf("%s: not JSON", f.Name)
		}
		if diff := cmp.Diff(wantLeft, left); diff != "" {
			t.Errorf("%s: left out (-want +got):\n%s", f.Name, diff)
		}
	}
}

// TestSaidToClients: the formats' own programs show it.
func TestSaidToClients(t *testing.T) {
	tr := saidTrace(t)
	for _, c := range []struct {
		format, tool string
		args         []string
		want         []string
	}{
		{"trace.dat", "trace-cmd", []string{"report", "-i"}, []string{
			"f(s=NULL, n=-1)", "f = 7", "sys_close = -1 EBADF (Bad file descriptor)", "signal SIGUSR1",
			"backtrace: f <- 0x2001 <- 0x1200 (depth)", long,
		}},
		{"ctf", "babeltrace2", nil, []string{
			`args = "s=NULL, n=-1"`, `func_exit: `, `result = "7"`, `text = "signal SIGUSR1"`,
			`frames = [ [0] = "f", [1] = "0x2001", [2] = "0x1200" ], end = "depth"`,
			`result = "-1 EBADF (Bad file descriptor)"`,
		}},
		{"uftrace", "uftrace", []string{"replay", "--no-pager", "-d"}, []string{
			`f("NULL", "-1") {`, `f("<0x10>", "3") = "8";`, `} = "7"; /* f */`,
		}},
	} {
		t.Run(c.format, func(t *testing.T) {
			testtool.Need(t, c.tool)
			out := output(t, c.tool, append(c.args, exported(t, tr, c.format))...)
			for _, s := range c.want {
				if !strings.Contains(out, s) {
					t.Errorf("%s does not show %s, but\n%s", c.tool, s, out)
				}
			}
		})
	}
	t.Run("perfetto", func(t *testing.T) {
		testtool.Need(t, "protoc")
		out := decodeProto(t, exported(t, tr, "perfetto"))
		want := regexp.MustCompile(`callstack \{\s+frames \{\s+function_name: "0x1200"\s+\}\s+frames \{\s+` +
			`function_name: "0x2001"\s+\}\s+frames \{\s+function_name: "f"`)
		if !want.MatchString(out) {
			t.Errorf("no callstack with main outermost in\n%s", out)
		}
	})
}

// long is longer than what trace.dat's events say their lengths of in their heads.
var long = strings.Repeat("a long text ", 30) + "."

// saidTrace has a call of f(char *s, int n) with another inside, a system call, a signal and a stack.
func saidTrace(t *testing.T) *trace.Trace {
	number := &arguments.Type{Kind: arguments.Int, Size: 4}
	c, err := arguments.Plan(&arguments.Func{Name: "f", Result: number, Params: []arguments.Param{
		{Name: "s", Type: &arguments.Type{Kind: arguments.String, Size: 8}}, {Name: "n", Type: number}}},
		arguments.AMD64, arguments.Entries|arguments.Exits, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var b bytes.Buffer
	w, err := trace.NewWriter(&b, trace.Header{Counter: 1000, CounterHz: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteImage(trace.Image{ID: 7, Path: "/bin/a", Sites: 1}); err != nil {
		t.Fatal(err)
	}
	k := w.Task(trace.TaskID{PID: 1, TID: 1, Image: 7, Comm: "a"})
	k.EnterWith(1000, 1, []uint64{0, 1<<32 - 1})
	k.EnterWith(1010, 1, []uint64{16, 3}, trace.Data{Flags: trace.DataString | trace.DataUnreadable, Asked: 64, Address: 16})
	k.ExitWith(1020, 1, []uint64{8})
	k.Signal(1021, trace.Signal{Number: 10})
	k.Frames(1022, 1, 0, 0x1200, 0x2001)
	k.Backtrace(1022, 2, format.EndDepth, 1)
	k.Mark(1023, 0, long)
	k.SysEnter(1023, 3, []uint64{9})
	k.SysExit(1024, ^uint64(8))
	k.SysEnter(1025, 95, []uint64{0o77}) // umask
	k.SysExit(1026, 0o22)
	k.ExitWith(1030, 1, []uint64{7})
	if err := k.Flush(); err != nil {
		t.Fatal(err)
	}
	var sym bytes.Buffer
	if err := names.Write(&sym, &names.Table{Funcs: []names.Func{{ID: 1, Addr: 0x10, Name: "f"}}, Captures: map[uint32]string{1: string(text)}}); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{trace.EventsFile: b.Bytes(), trace.ImageID(7).String() + trace.SymExt: sym.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

// TestGoroutineNames: tracks of goroutines, which all would have the name of the program, are called what they are.
func TestGoroutineNames(t *testing.T) {
	tr := saidTrace(t)
	tr.Tasks[0].Goroutine = 17
	for format, want := range map[string]string{
		"chrome": `"name":"thread_name","pid":1,"tid":1,"args":{"name":"goroutine"}`, "perfetto": "goroutine",
		"speedscope": `"name":"goroutine (1)"`, "trace.dat": " goroutine\n",
	} {
		var out bytes.Buffer
		if _, err := write(t, Named(format), &out, export.From(tr)); err != nil {
			t.Fatal(format, err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: no %q", format, want)
		}
	}
}

// TestGoroutineNumbers: goroutines with one number, of two processes, and a thread whose id that is, too, are tracks of
// their own, and said to be goroutine 7.
func TestGoroutineNumbers(t *testing.T) {
	var b bytes.Buffer
	w, err := trace.NewWriter(&b, trace.Header{Counter: 1000, CounterHz: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteImage(trace.Image{ID: sample.Image, Path: "/server", Stacks: trace.StacksGoroutines}); err != nil {
		t.Fatal(err)
	}
	for i, id := range []trace.TaskID{{PID: 7, TID: 7}, {PID: 8, TID: 8}} {
		id.Image, id.Comm = sample.Image, "server"
		k := w.Task(id)
		at := 1000 + uint64(i)
		k.Enter(at+1, 1)
		k.Exit(at+100, 1)
		k.Stack(at+200, 1<<63|7)
		k.Enter(at+201, 2)
		k.Exit(at+300, 2)
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, trace.EventsFile), b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	for format, want := range map[string][]string{
		"chrome": {
			`"pid":7,"tid":7,"args":{"name":"server"}`, `"pid":7,"tid":1000000002,"args":{"name":"goroutine 7"}`,
			`"pid":8,"tid":8,"args":{"name":"server"}`, `"pid":8,"tid":7,"args":{"name":"goroutine"}`,
		},
		"perfetto":  {"server", "goroutine 7", "goroutine"},
		"trace.dat": {"7 server\n", "\n8 server\n", "\n1000000002 goroutine 7\n", "\n1000000003 goroutine 7\n"},
	} {
		var out bytes.Buffer
		if _, err := write(t, Named(format), &out, export.From(tr)); err != nil {
			t.Fatal(format, err)
		}
		for _, want := range want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q", format, want)
			}
		}
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := Named("uftrace").WriteDir(root, export.From(tr)); err != nil {
		t.Fatal(err)
	}
	for _, number := range []string{"7", "8", "1000000002", "1000000003"} {
		if st, err := root.Stat(number + ".dat"); err != nil || st.Size() != 32 {
			t.Errorf("uftrace: %s.dat has not two records: %v", number, err)
		}
	}
}
