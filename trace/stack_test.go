package trace

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/cost"
	"github.com/fentry-dev/fentry/internal/format"
)

// TestCalls plays scripts on one task and compares the events.
func TestCalls(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"recursion", "0 a 1 a 2 a 3 A 4 A 9 A", `
			0 entry a
			1 . entry a
			2 . . entry a leaf
			3 . . exit a 1/1 leaf
			4 . exit a 3/2
			9 exit a 9/6`},
		{"entered before the trace", "0 a 1 A 2 B 3 c 4 C 5 D", `
			0 entry a leaf
			1 exit a 1/1 leaf
			2 exit b noentry
			3 entry c leaf
			4 exit c 1/1 leaf
			5 exit d noentry`},
		{"tail calls", "0 a 5 b 7 B c 9 C d 10 D 12 A", `
			0 entry a
			5 . entry b leaf
			7 . exit b 2/2 leaf tail
			7 . entry c leaf tail
			9 . exit c 2/2 leaf tail
			9 . entry d leaf tail
			10 . exit d 1/1 leaf
			12 exit a 12/7`},
		{"longjmp over two", "0 a 1 b 2 c 3 d 10 resync:3 e 11 E 20 A", `
			0 entry a
			1 . entry b
			2 . . entry c
			3 . . . entry d
			10 . . . unwound d 7/7
			10 . . unwound c 8/1
			10 . unwound b 9/1
			10 . entry e leaf
			11 . exit e 1/1 leaf
			20 exit a 20/10`},
		{"resync of more than there is", "0 a 1 resync:9 2 b 3 B", `
			0 entry a
			1 unwound a 1/1
			2 entry b leaf
			3 exit b 1/1 leaf`},
		{"coroutine that the runtime took for a longjmp", "0 a 1 b 2 c 5 resync:1 d 8 D 10 C 11 B 12 A", `
			0 entry a
			1 . entry b
			2 . . entry c
			5 . . unwound c 3/3
			5 . . entry d leaf
			8 . . exit d 3/3 leaf
			10 . . exit c 8/3 resumed
			11 . exit b 10/4
			12 exit a 12/2`},
		{"missing exits after a loss", "0 a 1 b 2 c 3 lost:4 10 B 12 A", `
			0 entry a
			1 . entry b
			2 . . entry c
			3 . . . lost 4
			10 . . unwound c 8/8
			10 . exit b 9/1
			12 exit a 12/3`},
		{"missing entries after a loss", "0 a 3 lost:1 10 B 12 A", `
			0 entry a
			3 . lost 1
			10 . exit b noentry
			12 exit a 12/12`},
		{"stacks", "0 a 1 stack:1 2 b 3 c 4 stack:0 10 d 11 D 12 stack:1 13 C 14 B 15 stack:0 20 A", `
			0 entry a
			1 stack 1
			2 entry b
			3 . entry c
			4 . stack 0
			10 . entry d leaf
			11 . exit d 1/1 leaf
			12 . . stack 1
			13 . exit c 10/2
			14 exit b 12/2
			15 . stack 0
			20 exit a 20/13`},
		{"thread ends inside calls", "0 a 1 b 5 end", `
			0 entry a
			1 . entry b
			1 . unfinished b 0/0
			1 unfinished a 1/1
			5 thread_end`},
		{"killed", "0 a 1 b 5 stack:3 6 c 7 d 8 D", `
			0 entry a
			1 . entry b
			5 stack 3
			6 entry c
			7 . entry d leaf
			8 . exit d 1/1 leaf
			8 unfinished c 2/1
			8 . unfinished b 7/4
			8 unfinished a 8/1`},
		{"notes", "0 start a 1 mark:77 2 comm:renamed 3 A", `
			0 start
			0 entry a
			1 . mark 77
			2 . comm
			3 exit a 3/3`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := open(t, build(t, func(w *Writer) {
				script(t, w.Task(TaskID{PID: 7, TID: 7, Image: testImage, Comm: "p"}), c.script)
			}))
			want := strings.ReplaceAll(strings.TrimPrefix(c.want, "\n"), "\t", "") + "\n"
			have := text(t, tr, WalkOptions{})
			have = strings.ReplaceAll(have, " p-7", "")
			if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(have, "\n")); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestSelfAddsUp checks that every moment of a task belongs to one call: what
// the calls have for themselves is the time in which one was open on the stack
// the task was on.
func TestSelfAddsUp(t *testing.T) {
	tr := open(t, build(t, func(w *Writer) {
		script(t, w.Task(TaskID{PID: 7, TID: 7, Image: testImage}),
			"0 a 5 b 9 stack:2 10 c 30 d 31 stack:0 40 B 45 resync:1 50 e 60 stack:2 70 D 80 C 81 stack:0 90 E 100 A")
	}))
	rows, err := tr.Report(ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var self int64
	for _, r := range rows {
		self += r.Self
	}
	// 0..9 on stack 0, 10..31 on 2, 31..45 on 0, 50..60 on 0, 60..80 on 2, 81..90 on 0.
	if want := int64(9 + 21 + 14 + 10 + 20 + 9); self != want {
		t.Errorf("calls have %d ns for themselves, want %d", self, want)
	}
}

func forkTasks(w *Writer) (parent, child *TaskWriter) {
	return w.Task(TaskID{PID: 7, TID: 7, Key: 1, Image: testImage, Comm: "p"}),
		w.Task(TaskID{PID: 8, TID: 8, Key: 2, ParentPID: 7, ParentTID: 7, Image: testImage, Comm: "c"})
}

// TestFork checks what forked tasks inherit.
func TestFork(t *testing.T) {
	for _, c := range []struct{ name, parent, child, want string }{
		{"child returns, parent went on", "0 a 100 b 101 c 500 d 501 e 900 E 901 D 902 C 903 B 904 A",
			"800 fork f 801 F 802 C 803 B", `
			800 . . . fork 30064771079
			800 . . . entry f leaf
			801 . . . exit f 1/1 leaf
			802 . . exit c 2/1 inherited
			803 . exit b 3/1 inherited
			803 unfinished a 3/0 inherited`},
		{"child returns, parent left the calls", "0 a 100 b 101 c 500 C 501 B 502 d 903 D 904 A",
			"800 fork f 801 F 802 C 803 B", `
			800 . . . fork 30064771079
			800 . . . entry f leaf
			801 . . . exit f 1/1 leaf
			802 . . exit c 2/1 inherited
			803 . exit b 3/1 inherited
			803 unfinished a 3/0 inherited`},
		{"child returns, the parent's thread has ended", "0 a 100 b 101 c 500 end", "800 fork f 801 F 802 C 803 B", `
			800 . . . fork 30064771079
			800 . . . entry f leaf
			801 . . . exit f 1/1 leaf
			802 . . exit c 2/1 inherited
			803 . exit b 3/1 inherited
			803 unfinished a 3/0 inherited`},
		{"child never returns, parent still forks", "0 start 50000 a 50100 b 50101 c 90000 C", "80000 fork g 80001 G", `
			80000 . . . fork 30064771079
			80000 . . . entry g leaf
			80001 . . . exit g 1/1 leaf
			80001 . . unfinished c 1/0 inherited
			80001 . unfinished b 1/0 inherited
			80001 unfinished a 1/0 inherited`},
		{"child never returns, parent may fork or wait", "0 a 100 b 90000 B 90100 c 150000 C", "140000 fork g 140001 G", `
			140000 . fork 30064771079
			140000 . entry g leaf
			140001 . exit g 1/1 leaf
			140001 unfinished a 1/0 inherited`},
		{"child never returns, the parent's thread has ended", "0 a 100 b 90000 B 90100 c 140000 end", "140001 fork g 140002 G", `
			140001 . fork 30064771079
			140001 . entry g leaf
			140002 . exit g 1/1 leaf
			140002 unfinished a 1/0 inherited`},
		{"child never returns, the parent's thread has ended long ago", "0 a 100 b 500 end", "9000000 fork g 9000001 G", `
			9000000 . . fork 30064771079
			9000000 . . entry g leaf
			9000001 . . exit g 1/1 leaf
			9000001 . unfinished b 1/0 inherited
			9000001 unfinished a 1/0 inherited`},
		{"child never returns, the parent's thread has ended outside of calls", "0 a 100 b 500 B 501 A 600 end", "9000000 fork g 9000001 G", `
			9000000 fork 30064771079
			9000000 entry g leaf
			9000001 exit g 1/1 leaf`},
		// The parent's pause is that of the fork.
		{"child never returns, parent went on", "0 a 100 b 101 c 90000 d 90001 e 90002 f 90500 F 90501 E 90502 D 90503 C",
			"90300 fork g 90301 G", `
			90300 . . . fork 30064771079
			90300 . . . entry g leaf
			90301 . . . exit g 1/1 leaf
			90301 . . unfinished c 1/0 inherited
			90301 . unfinished b 1/0 inherited
			90301 unfinished a 1/0 inherited`},
		// With a threshold, entries of calls that have not lasted long come when they have.
		{"held back, the parent wrote it too", "0 a 100 b 900 B 1000 A", "500 fork 100 b 600 B 700 A", `
			500 . fork 30064771079
			600 . exit b 100/100 inherited
			700 exit a 200/100 inherited`},
		{"held back, the parent never wrote it", "0 a 1000 A", "500 fork 100 b 200 c 600 C 700 B 800 A", `
			500 . fork 30064771079
			600 . . exit c 100/100 inherited
			700 . exit b 200/100 inherited
			800 exit a 300/100 inherited`},
		{"held back, the parent is in another call by now", "0 a 300 c 900 C 1000 A", "500 fork 100 b 600 B 700 x 800 X", `
			500 . . fork 30064771079
			600 . exit b 100/100 inherited
			700 . entry x leaf
			800 . exit x 100/100 leaf
			800 unfinished a 300/100 inherited`},
		{"held back, and the child never returns", "0 a 300 c 900 C 1000 A", "500 fork 100 b 700 x 800 X", `
			500 . . fork 30064771079
			700 . . entry x leaf
			800 . . exit x 100/100 leaf
			800 . unfinished b 300/200 inherited
			800 unfinished a 300/0 inherited`},
		{"parent is dead", "0 a 100 b 101 B", "90300 fork g 90301 G", `
			90300 . fork 30064771079
			90300 . entry g leaf
			90301 . exit g 1/1 leaf
			90301 unfinished a 1/0 inherited`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := open(t, build(t, func(w *Writer) {
				p, k := forkTasks(w)
				script(t, p, c.parent)
				script(t, k, c.child)
			}))
			want := strings.ReplaceAll(strings.TrimPrefix(c.want, "\n"), "\t", "") + "\n"
			shows := func(how string, tasks []*Task) {
				t.Helper()
				have := text(t, tr, WalkOptions{Tasks: tasks})
				var lines []string
				for l := range strings.SplitSeq(have, "\n") {
					if !strings.Contains(l, " p-7") {
						lines = append(lines, strings.ReplaceAll(l, " c-8", ""))
					}
				}
				if d := cmp.Diff(strings.Split(want, "\n"), lines); d != "" {
					t.Errorf("%s: %s", how, d)
				}
			}
			shows("all", nil)
			shows("the child", tr.Tasks[1:])
			// The call tree has the child's calls where the walk has them.
			root, err := tr.Graph(GraphOptions{})
			if err != nil {
				t.Fatal(err)
			}
			depth := strings.Count(strings.Split(want, "\n")[1], ". ")
			if have := deepest(root); have < depth {
				t.Errorf("the graph is %d deep, want at least %d", have, depth)
			}
			// An index has what the child inherited, too.
			if ok, err := tr.MakeIndex(IndexOptions{Memory: true}); !ok || err != nil {
				t.Fatal(ok, err)
			}
			shows("the child, with an index", tr.Tasks[1:])
			shows("all, with an index", nil)
		})
	}
}

// TestForkBeforeWindow: what a child inherits does not depend on where a window begins: also in the pause in which its
// parent has forked.
func TestForkBeforeWindow(t *testing.T) {
	tr := open(t, build(t, func(w *Writer) {
		p, k := forkTasks(w)
		script(t, p, "0 a 100 b 101 c 50000 d 50001 e 60000 E 60001 D 90000 C 90001 B 90002 A")
		script(t, k, "50010 fork g 50011 G 70000 h 70001 H")
	}))
	const want = "a b c"
	inherits := func(o ReportOptions) string {
		t.Helper()
		o.Tasks = tr.Tasks[1:]
		rows, err := tr.Report(o)
		if err != nil {
			t.Fatal(err)
		}
		var s []string
		for _, r := range rows {
			if r.Calls == 0 {
				s = append(s, r.Name)
			}
		}
		slices.Sort(s)
		return strings.Join(s, " ")
	}
	for _, index := range []bool{false, true} {
		if index {
			if ok, err := tr.MakeIndex(IndexOptions{Memory: true}); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		for _, o := range []ReportOptions{
			{}, {From: 50}, {From: 40000}, {From: 49999}, {From: 50000}, {From: 50005}, {From: 60500}, {From: 40000, To: 51000}, {From: 50005, To: 51000},
		} {
			if have := inherits(o); have != want {
				t.Errorf("index %v, from %d to %d: the child inherits %q, want %q", index, o.From, o.To, have, want)
			}
		}
	}
}

func deepest(n *Node) int {
	d := -1
	for _, c := range n.Children {
		d = max(d, deepest(c))
	}
	return d + 1
}

// TestForkedCalls checks that a call that goes on in a child is counted once,
// and its time in each task.
func TestForkedCalls(t *testing.T) {
	tr := open(t, build(t, func(w *Writer) {
		p, k := forkTasks(w)
		script(t, p, "0 a 100 b 500 B 1000 A")
		script(t, k, "400 fork 600 B 700 A")
	}))
	rows, err := tr.Report(ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][3]int64{}
	for _, r := range rows {
		got[r.Name] = [3]int64{int64(r.Calls), r.Total, r.Self}
	}
	want := map[string][3]int64{"a": {1, 1000 + 300, 600 + 100}, "b": {1, 400 + 200, 400 + 200}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestExec checks that an exec'd image's task does not continue the old calls.
func TestExec(t *testing.T) {
	tr := open(t, build(t, func(w *Writer) {
		script(t, w.Task(TaskID{PID: 7, TID: 7, Key: 1, Image: testImage, Comm: "sh"}), "0 start a 10 b")
		script(t, w.Task(TaskID{PID: 7, TID: 7, Key: 50, Image: 99, Comm: "ls"}), "50 start a 60 A")
	}))
	want := lines(
		"0 sh-7 start",
		"0 sh-7 entry a",
		"10 sh-7 . entry b",
		"10 sh-7 . unfinished b 0/0",
		"10 sh-7 unfinished a 10/10",
		"50 ls-7 start",
		"50 ls-7 entry 0000000000000063:#1 leaf",
		"60 ls-7 exit 0000000000000063:#1 10/10 leaf",
	)
	if d := cmp.Diff(want, text(t, tr, WalkOptions{})); d != "" {
		t.Error(d)
	}
	if len(tr.Tasks) != 2 || tr.Images[1].ID != 99 {
		t.Errorf("%d tasks, images %v", len(tr.Tasks), tr.Images)
	}
}

// TestDeepRecursion checks a million nested calls, with all and with none returning.
func TestDeepRecursion(t *testing.T) {
	const n = 1_000_000
	for _, back := range []bool{true, false} {
		tr := open(t, build(t, func(w *Writer) {
			k := w.Task(TaskID{PID: 7, TID: 7, Image: testImage})
			now := uint64(1000)
			for range n {
				k.Enter(now, 1)
				now++
			}
			for range n {
				if back {
					k.Exit(now, 1)
					now++
				}
			}
			if err := k.Flush(); err != nil {
				t.Fatal(err)
			}
		}))
		rows, err := tr.Report(ReportOptions{})
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		want := int64(2*n - 1)
		if !back {
			want = n - 1
		}
		if r := rows[0]; r.Calls != n || r.Total != want || r.Self != want || back == (r.Unfinished == n) {
			t.Errorf("back %v: %+v", back, r)
		}
		root, err := tr.Graph(GraphOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if c := root.Children; len(c) != 1 || c[0].Calls != n || c[0].Recursive != n-1 || len(c[0].Children) != 0 {
			t.Errorf("folded: %+v", c)
		}
		root, err = tr.Graph(GraphOptions{KeepRecursion: true, MaxDepth: 100})
		if err != nil {
			t.Fatal(err)
		}
		if d := deepest(root); d != 100 {
			t.Errorf("kept: %d deep, want 100", d)
		}
	}
}

// counts is a sink that counts.
type counts struct{ entered, suspended, forgotten, left, unwound, unfinished, orphans, calls int }

func (c *counts) enter(*frame)   { c.entered++ }
func (c *counts) suspend(*frame) { c.suspended++ }
func (c *counts) forget(*frame)  { c.forgotten++ }
func (c *counts) call(FuncID)    { c.calls++ }
func (c *counts) orphan(FuncID)  { c.orphans++ }
func (c *counts) leave(_ *frame, _ uint64, how ending) {
	switch how {
	case endExit:
		c.left++
	case endUnwound:
		c.unwound++
	default:
		c.unfinished++
	}
}

func fn(id uint32) FuncID { return FuncID{ID: id} }

// TestLimits drives the follower to its limits: whatever it gives up, every call
// that was entered is left once.
func TestLimits(t *testing.T) {
	t.Run("frames kept aside", func(t *testing.T) {
		var c counts
		fl := newFollower(&c, 0, 0)
		const n = 5 * maxSuspended
		for i := range uint64(n) {
			fl.step(&word{t: i, code: wEntry, fn: fn(uint32(i + 1))})
			fl.step(&word{t: i, code: wResync, arg: 1})
		}
		if len(fl.aside) > maxSuspended {
			t.Errorf("%d frames aside", len(fl.aside))
		}
		// The newest can still exit, the oldest cannot.
		fl.step(&word{t: n, code: wExit, fn: fn(n)})
		fl.step(&word{t: n, code: wExit, fn: fn(1)})
		fl.finish()
		if want := (counts{entered: n, suspended: n, left: 1, unwound: n - 1, orphans: 1}); c != want {
			t.Errorf("%+v, want %+v", c, want)
		}
	})
	t.Run("open calls", func(t *testing.T) {
		var c counts
		fl := newFollower(&c, 0, 0)
		fl.open = maxOpen - 3 // on other stacks
		for range 10 {
			fl.step(&word{code: wEntry, fn: fn(1)})
		}
		fl.step(&word{code: wResync, arg: 2})
		for range 8 {
			fl.step(&word{code: wExit, fn: fn(1)})
		}
		if want := (counts{entered: 3, left: 3}); c != want || len(fl.cur.frames) != 0 {
			t.Errorf("%+v, want %+v", c, want)
		}
	})
	t.Run("stacks", func(t *testing.T) {
		var c counts
		fl := newFollower(&c, 0, 0)
		for i := range uint64(maxStacks + 100) {
			fl.step(&word{code: wStack, arg: i})
			fl.step(&word{code: wEntry, fn: fn(1)})
		}
		if len(fl.stacks) > maxStacks {
			t.Errorf("%d stacks", len(fl.stacks))
		}
		fl.finish()
		if c.entered != maxStacks+100 || c.unfinished != c.entered {
			t.Errorf("%+v", c)
		}
	})
	t.Run("searches", func(t *testing.T) {
		// A deep stack and exits of what is not on it: the search must not look
		// through all of it each time.
		var c counts
		fl := newFollower(&c, 0, 0)
		const n = 1_000_000
		fl.step(&word{code: wEntry, fn: fn(2)})
		for range n {
			fl.step(&word{code: wEntry, fn: fn(1)})
		}
		cost.Time(t, func() {
			for range 100_000 {
				fl.step(&word{code: wExit, fn: fn(3)})
			}
		})
		if c.orphans != 100_000 {
			t.Errorf("%+v", c)
		}
	})
	t.Run("one search far out", func(t *testing.T) {
		var c counts
		fl := newFollower(&c, 0, 0)
		const n = 1_000_000
		fl.step(&word{code: wEntry, fn: fn(2)})
		for range n {
			fl.step(&word{code: wEntry, fn: fn(1)})
		}
		fl.step(&word{code: wLost, arg: n})
		fl.step(&word{code: wExit, fn: fn(2)})
		if want := (counts{entered: n + 1, left: 1, unwound: n}); c != want {
			t.Errorf("%+v, want %+v", c, want)
		}
	})
}

// TestFarIDs counts functions whose ids no image has.
func TestFarIDs(t *testing.T) {
	ids := []uint32{1, maxTableIDs - 1, maxTableIDs, format.IDMax}
	tr := open(t, build(t, func(w *Writer) {
		k := w.Task(TaskID{PID: 7, TID: 7, Image: testImage})
		for i := range uint64(100) {
			for j, id := range ids {
				k.Enter(1000+10*i+uint64(j), id)
			}
			for range ids {
				k.Exit(1005+10*i, ids[0])
				ids = append(ids[1:], ids[0])
			}
		}
		k.Flush()
	}))
	rows, err := tr.Report(ReportOptions{PerTask: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(ids) {
		t.Fatalf("%d rows", len(rows))
	}
	for _, r := range rows {
		if r.Calls != 100 {
			t.Errorf("%s: %d calls", r.Name, r.Calls)
		}
	}
}
