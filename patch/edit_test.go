package patch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
)

// set gives a function of a plan an action.
func set(t *testing.T, p *patch.Plan, name string, a patch.Action) {
	t.Helper()
	for i := range p.Functions {
		if p.Functions[i].Name == name {
			p.Functions[i].Action = a
			return
		}
	}
	t.Fatalf("no function %s", name)
}

// outcome is all that a plan gives.
func outcome(t *testing.T, p *patch.Plan) (image []byte, all string) {
	t.Helper()
	var b bytes.Buffer
	if err := p.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	j, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	b.Write(j)
	if image, err = p.Image(); err != nil {
		t.Fatal(err)
	}
	return image, b.String()
}

// A plan that is edited gives what a plan gives that was made so, in all ways in which it can be asked, and
// however often it is edited.
func TestEditedPlan(t *testing.T) {
	orig := read(t, compile(t, "-pg", "-mfentry"))
	filter := func(patterns ...string) *record.Filter {
		f, err := record.NewFilter(patterns, nil)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	p := plan(t, orig, patch.Options{})
	check := func(what string, o patch.Options) {
		t.Helper()
		gotImage, got := outcome(t, p)
		wantImage, want := outcome(t, plan(t, orig, o))
		if got != want {
			t.Errorf("%s: plan is\n%s\nwant\n%s", what, got, want)
		}
		if !bytes.Equal(gotImage, wantImage) {
			t.Errorf("%s: another image", what)
		}
		if in, err := patch.Verify(gotImage); err != nil || len(in.Sites) != p.Traced() {
			t.Errorf("%s: verify: %+v, %v", what, in, err)
		}
		if back, err := patch.Undo(gotImage); err != nil || !bytes.Equal(back, orig) {
			t.Errorf("%s: undo did not give the original back (%v)", what, err)
		}
	}
	check("as made", patch.Options{})
	set(t, p, "mid", patch.Nop)
	check("a nop", patch.Options{Select: filter("leaf", "main")})
	set(t, p, "mid", patch.Leave)
	set(t, p, "main", patch.Leave)
	check("left alone", patch.Options{Select: filter("leaf"), Keep: true})
	set(t, p, "mid", patch.Trace)
	check("traced again", patch.Options{Select: filter("leaf", "mid"), Keep: true})
	set(t, p, "main", patch.Trace)
	p.Options.Depth, p.Options.Tracer, p.Options.Path = 3, patch.Profile, "/elsewhere"
	check("other options", patch.Options{Depth: 3, Tracer: patch.Profile, Path: "/elsewhere"})

	p.Options = patch.Options{Target: patch.Process, Session: "/pool"}
	set(t, p, "mid", patch.Nop)
	m, err := p.Memory()
	if err != nil {
		t.Fatal(err)
	}
	o := patch.Options{Target: patch.Process, Session: "/pool", Select: filter("leaf", "main")}
	want, err := plan(t, orig, o).Memory()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(m.RX, want.RX) || m.Entry != want.Entry || len(m.Edits) != len(want.Edits) {
		t.Error("another memory of a process")
	}
}

// The methods agree about an edited plan, whichever is asked first: the bytes in which its image differs from that of
// the plan as it was are those of its edits.
func TestEditedPlanAgrees(t *testing.T) {
	orig := read(t, compile(t, "-pg", "-mfentry"))
	file, err := elfio.Parse(orig)
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range []string{"image", "edits"} {
		p := plan(t, orig, patch.Options{})
		var mid patch.Func
		for _, fn := range p.Functions {
			if fn.Name == "mid" {
				mid = fn
			}
		}
		edited := func() (image []byte, edits []arch.Edit) {
			t.Helper()
			var err, err2 error
			if first == "image" {
				image, err = p.Image()
			}
			edits, err2 = p.Edits()
			if first == "edits" {
				image, err = p.Image()
			}
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			return image, edits
		}
		for _, action := range []patch.Action{patch.Trace, patch.Leave, patch.Nop} {
			set(t, p, "mid", action)
			image, edits := edited()
			var new []byte
			for _, e := range edits {
				if e.Func == "mid" {
					new = e.New
				}
			}
			off, _ := file.Offset(mid.Site.Addr)
			got := image[off:][:mid.Len]
			if action == patch.Leave && (new != nil || !bytes.Equal(got, mid.Bytes)) {
				t.Errorf("%s first, %s: edit % x, image has % x", first, action, new, got)
			}
			if action != patch.Leave && (bytes.Equal(got, mid.Bytes) || !bytes.Equal(got, new)) {
				t.Errorf("%s first, %s: edit % x, image has % x", first, action, new, got)
			}
		}
	}
}

// What a plan is edited to is checked, and nothing is left of what it was before.
func TestEditedPlanRefuses(t *testing.T) {
	call := read(t, compile(t, "-pg", "-mfentry"))
	nops := read(t, compile(t, "-fpatchable-function-entry=5"))
	archive := append(bytes.Clone(call), "PK"...)
	for _, tt := range []struct {
		name  string
		image []byte
		edit  func(p *patch.Plan)
		want  string
	}{
		{"no site", call, func(p *patch.Plan) { set(t, p, "_start", patch.Trace) }, "_start: cannot be changed: no-site"},
		{"unknown action", call, func(p *patch.Plan) { set(t, p, "mid", 7) }, "mid: Action(7)"},
		{"nop of nops", nops, func(p *patch.Plan) { set(t, p, "mid", patch.Nop) }, "mid: its site is no call"},
		{"nothing", call, func(p *patch.Plan) {
			for i := range p.Functions {
				p.Functions[i].Action = patch.Leave
			}
		}, patch.ErrNoSites.Error()},
		{"overlay", archive, func(p *patch.Plan) { p.Options.Overlay = false }, patch.ErrOverlay.Error()},
	} {
		p := plan(t, tt.image, patch.Options{Overlay: true})
		tt.edit(p)
		for range 2 {
			if _, err := p.Image(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
			}
		}
		if _, err := p.Edits(); err == nil {
			t.Errorf("%s: edits", tt.name)
		}
		for i := range p.Functions {
			if f := &p.Functions[i]; p.Traced() != 0 || f.ID != 0 || p.Thunk(f) != 0 || len(p.Windows(f)) != 0 {
				t.Errorf("%s: %s is traced", tt.name, f.Name)
			}
		}
	}
}

// Calls that an edited plan leaves in a program with a tracer of its own would start that, too.
func TestEditedPlanKeepsNoTracer(t *testing.T) {
	const tracer = `
NI void return_to_handler(void) {}
NI void ftrace_graph_caller(void) {}
NI void prepare_ftrace_return(void) {}
`
	b := read(t, onAMD64.compile(t, "p.c", source+tracer, "-pg", "-mfentry"))
	p := plan(t, b, patch.Options{})
	if _, err := p.Image(); err != nil {
		t.Fatal(err)
	}
	set(t, p, "mid", patch.Leave)
	if _, err := p.Image(); !errors.Is(err, patch.ErrTracer) {
		t.Errorf("error %v, want ErrTracer", err)
	}
	set(t, p, "mid", patch.Nop)
	if _, err := p.Image(); err != nil {
		t.Error(err)
	}
}

// A function that is out of reach stays so, whatever else is edited.
func TestEditedPlanOutOfReach(t *testing.T) {
	orig := read(t, onARM64.compile(t, "p.c", largeSource(140<<20, 4, 4), "-pg"))
	p := plan(t, orig, patch.Options{})
	before, _ := outcome(t, p)
	traced, name := p.Traced(), ""
	for i := range p.Functions {
		if f := &p.Functions[i]; f.ID != 0 && f.Name != "main" {
			name = f.Name
		}
	}
	set(t, p, name, patch.Leave)
	if _, err := p.Image(); err != nil || p.Traced() != traced-1 {
		t.Errorf("%d functions traced, were %d (%v)", p.Traced(), traced, err)
	}
	set(t, p, name, patch.Trace)
	if again, _ := outcome(t, p); !bytes.Equal(before, again) {
		t.Error("another image after edits that were taken back")
	}
	for i := range p.Functions {
		if f := &p.Functions[i]; f.Reason == record.ReasonOutOfReach {
			f.Action = patch.Trace
			want := "cannot be changed: " + string(record.ReasonOutOfReach)
			if _, err := p.Image(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", f.Name, err)
			}
			return
		}
	}
	t.Error("nothing is out of reach")
}
