//go:build linux

package fentry_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/trace"
)

// Arguments and results of a function are captured in one way after the other while the program runs, also of one that was
// captured from the beginning and of a call that is open meanwhile, and each event is shown as it was captured.
func TestControlOtherArguments(t *testing.T) {
	rounds := []struct {
		set          string
		args, result string // as what leaf's are shown; "": not
		width        int    // words of arguments
	}{
		{"arguments = leaf", "%d", "", 1},
		{"arguments += leaf@arg1/x", "%#x", "", 2}, // the later one says all
		{"arguments -= leaf@arg1/x; results = leaf", "%d", "%d", 1},
		{"arguments = leaf@arg1/o; results = leaf@retval/x main@retval/x", "0%o", "%#x", 3},
		{"arguments = leaf@arg1/x", "%#x", "%#x", 2}, // as it was before
		{"results = leaf@retval/o main@retval/x; arguments = leaf@n/u", "%d", "0%o", 4},
		{"arguments = ; results = main@retval/x", "", "", 0},
	}
	for name, begun := range map[string]bool{"attached": false, "started": true} {
		t.Run(name, func(t *testing.T) {
			o := fentry.Options{Buffer: 32 << 20}
			if begun {
				o.Arguments, o.Results = specsOf(t, "leaf@n", "main@arg1/u"), specsOf(t, "leaf", "main")
			}
			c := startControlled(t, !begun, o, "-fpatchable-function-entry=5", "-g")
			want := make(map[string]int)
			for i, r := range rounds {
				c.control(r.set)
				n := 1 << i
				c.do("%s %d", []string{"work", "thread", "fork"}[i%3], n)
				args, result, width := r.args, r.result, r.width
				if begun && args == "" {
					args, width = "%d", 1
				}
				if begun && result == "" {
					result = "%d"
				}
				for k := range n {
					if args != "" {
						want[fmt.Sprintf("%d: "+args, width, k)] += 3
					}
					if result != "" {
						want[fmt.Sprintf("= "+result, k+1)] += 3
					}
				}
			}
			if begun {
				want["main 1"], want["main = 0x7"] = 1, 1
			}
			c.in.Close()
			<-c.ended
			got := waysOf(t, c.dir)
			if !begun {
				delete(got, "main = 0x7") // it was open when the recorder came, who may see its end
			}
			for _, text := range slices.Sorted(maps.Keys(want)) {
				if got[text] != want[text] {
					t.Errorf("%s: %d, want %d", text, got[text], want[text])
				}
				delete(got, text)
			}
			if len(got) > 0 {
				t.Errorf("and %v", got)
			}
		})
	}
}

// specsOf are specs of captures.
func specsOf(t *testing.T, texts ...string) (all []arguments.Spec) {
	t.Helper()
	for _, text := range texts {
		spec, err := arguments.ParseSpec(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, spec)
	}
	return all
}

// waysOf counts what was captured of leaf and main, as it is shown; of leaf's arguments also of how many words.
func waysOf(t *testing.T, dir string) map[string]int {
	t.Helper()
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	got := make(map[string]int)
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		name := tr.Name(ev.Func)
		if name != "leaf" && name != "main" {
			return nil
		}
		text := ""
		if name == "main" {
			text = "main "
		}
		c := tr.Capture(ev)
		if ev.Kind == trace.Entry && ev.Args != nil {
			shown := string(c.AppendArguments(nil, ev.Args.Words, ev.Args.Memory()))
			if name == "leaf" {
				shown = fmt.Sprintf("%d: %s", len(ev.Args.Words), shown)
			}
			got[text+shown]++
		}
		if ev.Kind == trace.Exit && ev.Result != nil {
			got[text+"= "+string(c.AppendResult(nil, ev.Result.Words, ev.Result.Memory()))]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}
