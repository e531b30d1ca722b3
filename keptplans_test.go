//go:build linux

package fentry

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/names"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/stub"
	"github.com/fentry-dev/fentry/trace"
)

// aged waits until a file was not changed just now.
func aged(t *testing.T, path string) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	time.Sleep(plansAge - time.Since(time.Unix(st.Ctim.Unix())) + 10*time.Millisecond)
}

// bare are edits without what they are for.
func bare(edits []arch.Edit) []arch.Edit {
	out := make([]arch.Edit, len(edits))
	for i, e := range edits {
		out[i] = arch.Edit{Addr: e.Addr, Old: e.Old, New: e.New}
	}
	return out
}

// What an earlier run has planned is put into a program, as long as nothing has changed, and is what a new plan is.
func TestKeptPlans(t *testing.T) {
	if !session.CanFollow() {
		t.Skip("programs that are executed are not followed here")
	}
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	_, path := staticProgram(t)
	pools := 0
	step := func(name string, o Options, kept bool) {
		t.Helper()
		e := newExecuted(&o)
		e.plans = newPlans(&o, nil)
		pools++
		e.pool = "/pool/" + string(rune('0'+pools))
		defer e.plans.close()
		defer e.close()
		exe, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer exe.Close()
		m := e.memory(path, exe)
		x := e.order[0]
		if m == nil || (x.kept != nil) != kept || x.about.Traced < 500 {
			t.Fatalf("%s: want kept %t: %v, %+v", name, kept, x.kept != nil, x.about)
		}
		made, err := e.make(path, exe, 0)
		if err != nil {
			t.Fatal(err)
		}
		p, plan, want := made.program, made.plan, made.memory
		defer p.Close()
		whole, err := m.Whole()
		if err != nil {
			t.Fatal(err)
		}
		if have := patch.AppendMemory(nil, whole, p.File); !bytes.Equal(have, patch.AppendMemory(nil, want, p.File)) ||
			!bytes.Equal(whole.SessionPath(), want.SessionPath()) || !reflect.DeepEqual(bare(whole.Edits), bare(want.Edits)) {
			t.Errorf("%s: another plan", name)
		}
		r := run{p: p, o: o, plans: e.plans, executed: e}
		id := trace.ImageID(plan.ImageID)
		var symbols, wantSymbols bytes.Buffer
		if err := r.writeSymbols(session.Image{Image: trace.Image{ID: id}}, &symbols); err != nil {
			t.Fatal(err)
		}
		if err := names.Write(&wantSymbols, planTable(p, plan)); err != nil || !bytes.Equal(symbols.Bytes(), wantSymbols.Bytes()) {
			t.Errorf("%s: other symbols, %v", name, err)
		}
		if kept && x.plan != nil {
			t.Errorf("%s: it was planned for its symbols", name)
		}
		if p, full := r.planOf(id); p == nil || full == nil || full.Traced() != plan.Traced() || len(p.Sites) == 0 {
			t.Errorf("%s: what it traces is not known", name)
		}
	}
	step("changed just now", Options{}, false)
	aged(t, path)
	step("first", Options{}, false)
	step("second", Options{}, true)
	step("another tracer", Options{Plan: patch.Options{Tracer: patch.Function}}, false)
	step("another tracer, again", Options{Plan: patch.Options{Tracer: patch.Function}}, true)
	step("for somebody who watches", Options{Live: func(*Live) {}}, false)

	// The beginning of a plan is read each time, the rest where the program's code was not changed before.
	for place, at := range map[string]func(size int) int{"head": func(int) int { return 8 }, "rest": func(size int) int { return size / 2 }} {
		list, err := filepath.Glob(filepath.Join(cache, "fentry", plansKind, "*", "plan"))
		if err != nil || len(list) != 2 {
			t.Fatalf("%d entries: %v", len(list), err)
		}
		for _, file := range list {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			b[at(len(b))] ^= 1
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.RemoveAll(filepath.Join(cache, "fentry", codeKind)); err != nil {
			t.Fatal(err)
		}
		step(place+" damaged", Options{}, false)
		step(place+" damaged, again", Options{}, true)
		step(place+" damaged, another tracer", Options{Plan: patch.Options{Tracer: patch.Function}}, false)
	}

	image, err := os.ReadFile(path)
	if err == nil {
		err = runfile.WriteFile(path, image)
	}
	if err != nil {
		t.Fatal(err)
	}
	aged(t, path)
	step("written again", Options{}, false)
}

// A run of a program of which a plan is kept records what the first one did, and its plan is made when it is asked for.
func TestKeptPlanRun(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	_, path := staticProgram(t)
	aged(t, path)
	o := Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Logf: t.Logf, Overhead: -1}
	var first *Result
	for i := range 3 {
		res, err := Run(context.Background(), exec.Command(path), o)
		if err != nil || !res.Injected || res.Status.ExitStatus() != 0 || res.Lost != 0 || res.Events == 0 {
			t.Fatalf("run %d: %+v, %v", i+1, res, err)
		}
		tr, err := trace.Open(o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for fn := range tr.Functions() {
			found = found || fn.Name == "main"
		}
		if !found {
			t.Errorf("run %d: no main", i+1)
		}
		tr.Close()
		if first == nil {
			first = res
		}
		if res.Traced != first.Traced || res.Events != first.Events {
			t.Errorf("run %d: %d functions, %d events; before %d, %d", i+1, res.Traced, res.Events, first.Traced, first.Events)
		}
	}
	plans := newPlans(&o, nil)
	defer plans.close()
	p, kept := plans.openKept(path)
	if p == nil {
		t.Fatal("nothing is kept")
	}
	defer p.Close()
	r := run{p: p, o: o, plans: plans, kept: kept}
	r.o.Plan.Path = path
	if m, err := r.memory("/pool"); m == nil || err != nil || r.main != nil || len(p.Sites) != 0 {
		t.Fatalf("%v, %v, %v, %d sites", m, err, r.main, len(p.Sites))
	}
	tab, err := r.names(trace.ImageID(kept.about.Image))
	if err != nil {
		t.Fatal(err)
	}
	if len(tab.Funcs) == 0 || r.main == nil || r.main.Traced() != kept.about.Traced {
		t.Errorf("%d functions, planned %t", len(tab.Funcs), r.main != nil)
	}
}

// Plans of programs in which functions are chosen are kept for the same patterns, with what these have matched.
func TestKeptChosen(t *testing.T) {
	if !session.CanFollow() {
		t.Skip("programs that are executed are not followed here")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	_, path := staticProgram(t)
	aged(t, path)
	filter := func(patterns ...string) *record.Filter {
		f, err := record.NewFilter(patterns, nil)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	dir := filepath.Join(t.TempDir(), "fentry.data")
	for _, tt := range []struct {
		name      string
		plan      func() patch.Options
		unmatched []string
	}{
		{"names", func() patch.Options { return patch.Options{Select: filter("main", "puts", "nosuch")} }, []string{"nosuch"}},
		{"all but some", func() patch.Options { return patch.Options{Select: filter("!nosuch", "!puts")} }, []string{"!nosuch"}},
		{"roots", func() patch.Options { return patch.Options{Roots: filter("main", "nosuch")} }, []string{"nosuch"}},
		{"hidden", func() patch.Options { return patch.Options{Hide: filter("puts", "none")} }, []string{"none"}},
		{"actions", func() patch.Options {
			stack := []patch.Act{{Kind: stub.ActStack}}
			rules := []patch.ActRule{{Functions: filter("puts", "no*such"), Acts: stack}, {Functions: filter("main"), Acts: stack}}
			return patch.Options{Select: filter("main"), Actions: &patch.Actions{Rules: rules}}
		}, []string{"no*such"}},
	} {
		var first *Result
		for i := range 2 {
			o := Options{Plan: tt.plan(), Dir: dir, Logf: t.Logf, Overhead: -1}
			var told []string
			o.Chosen = func() {
				told = append(told, o.Plan.Select.Unmatched()...)
				told = append(told, o.Plan.Roots.Unmatched()...)
				told = append(told, o.Plan.Hide.Unmatched()...)
				if o.Plan.Actions != nil {
					for _, r := range o.Plan.Actions.Rules {
						told = append(told, r.Functions.Unmatched()...)
					}
				}
			}
			plans := newPlans(&o, nil)
			p, kept := plans.openKept(path)
			if p != nil {
				p.Close()
			}
			plans.close()
			if (kept != nil) != (i > 0) {
				t.Errorf("%s, run %d: kept %t", tt.name, i+1, kept != nil)
			}
			o.Plan = tt.plan()
			res, err := Run(context.Background(), exec.Command(path), o)
			if err != nil || res.Events == 0 || res.Lost != 0 {
				t.Fatalf("%s, run %d: %+v, %v", tt.name, i+1, res, err)
			}
			if first == nil {
				first = res
			}
			if res.Traced != first.Traced || res.Events != first.Events || !slices.Equal(told, tt.unmatched) {
				t.Errorf("%s, run %d: %d functions, %d events, unmatched %q; before %d, %d, want %q", tt.name, i+1, res.Traced,
					res.Events, told, first.Traced, first.Events, tt.unmatched)
			}
		}
	}

	// With system calls those of the dynamic loader are recorded, too.
	source, _ := staticProgram(t)
	dynamic := filepath.Join(t.TempDir(), "dynamic")
	out, err := exec.Command(testtool.Path(t, "gcc"), "-Wl,--build-id", "-o", dynamic, source).CombinedOutput()
	if err == nil {
		err = os.Truncate(dynamic, plansFrom+1)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	aged(t, dynamic)
	for _, path := range []string{path, dynamic} {
		events := []uint64{0, 0}
		for i := range events {
			o := Options{Plan: patch.Options{NoFunctions: true}, Syscalls: true, Dir: dir, Logf: t.Logf}
			plans := newPlans(&o, nil)
			p, kept := plans.openKept(path)
			if p != nil {
				p.Close()
			}
			plans.close()
			res, err := Run(context.Background(), exec.Command(path), o)
			if err != nil || res.Lost != 0 || (kept != nil) != (i > 0) {
				t.Fatalf("%s, system calls, run %d: kept %t, %+v, %v", path, i+1, kept != nil, res, err)
			}
			events[i] = res.Events
		}
		if events[0] == 0 || events[0] != events[1] {
			t.Errorf("%s: %d events of system calls", path, events)
		}
	}

	// Tables of counts are as they would be.
	for _, tracer := range []patch.Tracer{patch.Profile, patch.Count} {
		var calls [2]map[string]uint64
		for i := range calls {
			o := Options{Plan: patch.Options{Tracer: tracer}, Dir: dir, Logf: t.Logf}
			if _, err := Run(context.Background(), exec.Command(path), o); err != nil {
				t.Fatal(err)
			}
			tr, err := trace.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			rows, err := tr.Report(trace.ReportOptions{})
			if err != nil {
				t.Fatal(err)
			}
			calls[i] = map[string]uint64{}
			for _, r := range rows {
				calls[i][tr.Func(r.Func).Name] += r.Calls
			}
			tr.Close()
		}
		if calls[0]["main"] != 1 || !maps.Equal(calls[0], calls[1]) {
			t.Errorf("%s: %v, then %v", tracer, calls[0], calls[1])
		}
	}

	// What is captured is known, with what was said of it: of functions without debug information nothing is kept, as it can come.
	typed := path + ".typed"
	if out, err := exec.Command(testtool.Path(t, "gcc"), "-g", "-static", "-o", typed, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	aged(t, typed)
	for _, tt := range []struct {
		path, spec string
		kept       bool
	}{{typed, "main", true}, {path, "main", false}, {typed, "main@nosuch", true}} {
		spec, err := arguments.ParseSpec(tt.spec)
		if err != nil {
			t.Fatal(err)
		}
		none, err := arguments.ParseSpec("nosuch")
		if err != nil {
			t.Fatal(err)
		}
		var first, said string
		for i := range 2 {
			var lines []string
			o := Options{Results: []arguments.Spec{spec, none}, Dir: dir, Captured: new(Captured), Overhead: -1,
				Logf: func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }}
			for _, text := range []string{"arg1>=0", "nosuch~a*"} {
				c, err := arguments.ParseCondition(text)
				if err != nil {
					t.Fatal(err)
				}
				o.Conditions = append(o.Conditions, c)
			}
			capturing, err := newCapturing(&o)
			if err != nil {
				t.Fatal(err)
			}
			plans := newPlans(&o, capturing)
			p, kept := plans.openKept(tt.path)
			if p != nil {
				// Who wants more of it gets the plan as it was made, with what is captured.
				r := run{p: p, o: o, plans: plans, kept: kept, capturing: capturing}
				r.o.Plan.Path = tt.path
				if _, err := r.memory("/pool"); err != nil {
					t.Fatal(err)
				}
				tab, err := r.names(trace.ImageID(kept.about.Image))
				if captured := tt.spec == "main"; err != nil || tab == nil || captured != (len(tab.Captures) > 0) {
					t.Errorf("%s of %s: planned again: %+v, %v", tt.spec, tt.path, tab, err)
				}
				p.Close()
			}
			plans.close()
			o.Captured, lines = new(Captured), nil
			if _, err := Run(context.Background(), exec.Command(tt.path), o); err != nil {
				t.Fatal(err)
			}
			tr, err := trace.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			value := ""
			err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
				if ev.Result != nil && tr.Func(ev.Func).Name == "main" {
					value = fmt.Sprintf("%+v", *ev.Result)
				}
				return nil
			})
			tr.Close()
			_, unmatched := o.Captured.Unmatched()
			is := fmt.Sprintln(value, unmatched)
			if i == 0 {
				first, said = is, fmt.Sprint(lines)
				if plain := tt.path == typed && tt.spec == "main"; plain != (len(lines) == 0) || plain && value == "" {
					t.Errorf("%s of %s: %s, %q", tt.spec, tt.path, value, lines)
				}
			}
			if err != nil || (kept != nil) != (tt.kept && i > 0) || is != first || fmt.Sprint(lines) != said || !slices.Equal(unmatched, []string{"nosuch"}) {
				t.Errorf("%s of %s, run %d: kept %t, %s, %q, %v; before %s, %s", tt.spec, tt.path, i+1, kept != nil, is, lines, err, first, said)
			}
		}
	}

	// Of what was executed and has nothing that was chosen a plan is kept, too. Who runs it is told why nothing is traced.
	why := ""
	for i := range 2 {
		o := Options{Plan: patch.Options{Select: filter("nosuch")}, Dir: dir}
		e := newExecuted(&o)
		e.plans, e.pool = newPlans(&o, nil), "/pool"
		exe, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		m, x := e.memory(path, exe), e.order[0]
		if m == nil || (x.kept != nil) != (i > 0) || x.about.Untraced == "" || x.about.Traced != 0 || why != "" && x.about.Untraced != why {
			t.Errorf("executed, run %d: %v, kept %t, %+v; before %q", i+1, m, x.kept != nil, x.about, why)
		}
		why = x.about.Untraced
		if p, kept := e.plans.openKept(path); p != nil || kept != nil {
			t.Errorf("run %d: a plan that traces nothing is the program's own", i+1)
		}
		exe.Close()
		e.plans.close()
		e.close()
	}
}
