package triggers

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]Trigger{
		"f@traceoff":                              {"f", []Action{{Kind: TraceOff}}},
		"f@trace_on:3":                            {"f", []Action{{Kind: TraceOn, Limit: 3}}},
		"parse_*@depth=2,color=red":               {"parse_*", []Action{{Kind: Depth, Value: 2}, {Kind: Color, Value: 31}}},
		"libc.so*:strlen@plt@backtrace:10,finish": {"libc.so*:strlen@plt", []Action{{Kind: StackTrace, Limit: 10}, {Kind: Finish}}},
		"/a@b,c/@depth=1:4294967295":              {"/a@b,c/", []Action{{Kind: Depth, Value: 1, Limit: 1<<32 - 1}}},
	} {
		got, err := Parse(s)
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v; want %+v", s, got, err, want)
		}
	}
	for s, want := range map[string]string{
		"":                     "position 1: no action",
		"main":                 "position 5: no action",
		"@traceon":             "position 1: no function",
		"f@":                   `position 3: no action ""`,
		"f@traceon,":           `position 11: no action ""`,
		"f@traceof:3":          `position 3: no action "traceof"`,
		"f@traceon=1":          "position 10: traceon has no value",
		"f@traceon:0":          `position 11: "0" is not how often`,
		"f@traceon:x":          `position 11: "x" is not how often`,
		"f@traceon:4294967296": "position 11:",
		"f@depth":              "position 9: depth=: not a number",
		"f@finish,depth=0":     "position 16: depth=0: not a number",
		"f@depth=-1":           "position 9: depth=-1: not a number",
		"f@color=pink":         `position 9: no color "pink"; there are black`,
		"f@color=red:2":        "position 12: color has no count",
		"f@finish:2":           "position 9: finish has no count",
		"f@traceon,trace_on":   "position 11: traceon is there twice",
	} {
		if _, err := Parse(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", s, err, want)
		}
	}
}

// FuzzParse: nothing that a user writes makes more of it than there is.
func FuzzParse(f *testing.F) {
	f.Add("f@traceoff:3,depth=2")
	f.Add("a@b@color=red")
	f.Fuzz(func(t *testing.T, s string) {
		tr, err := Parse(s)
		if err != nil {
			return
		}
		if tr.Functions == "" || !strings.HasPrefix(s, tr.Functions+"@") || len(tr.Actions) == 0 || len(tr.Actions) > len(Forms()) {
			t.Errorf("%q: %+v", s, tr)
		}
	})
}
