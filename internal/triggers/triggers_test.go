package triggers

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]Trigger{
		"f@traceoff":                              {"f", 0, []Action{{Kind: TraceOff}}},
		"f@trace_on:3":                            {"f", 0, []Action{{Kind: TraceOn, Limit: 3}}},
		"parse_*@depth=2,color=red":               {"parse_*", 0, []Action{{Kind: Depth, Value: 2}, {Kind: Color, Value: 31}}},
		"libc.so*:strlen@plt@backtrace:10,finish": {"libc.so*:strlen@plt", 0, []Action{{Kind: StackTrace, Limit: 10}, {Kind: Finish}}},
		"/a@b,c/@depth=1:4294967295":              {"/a@b,c/", 0, []Action{{Kind: Depth, Value: 1, Limit: 1<<32 - 1}}},
		"f@time>10ms,snapshot:3":                  {"f", 10 * time.Millisecond, []Action{{Kind: Snapshot, Limit: 3}}},
		"operator>@finish,color=red,time>1h":      {"operator>", time.Hour, []Action{{Kind: Finish}, {Kind: Color, Value: 31}}},
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
		"f@snapshot=1":         "position 11: snapshot has no value",
		"f@time>10ms":          "position 3: time>10ms: nothing is to be done then",
		"f@time>1s,color=red":  "position 3: time>1s: nothing is to be done then",
		"f@time>1s,depth=2":    "position 3: depth= is about what a call does",
		"f@finish,time>":       `position 15: "" is no time`,
		"f@time>0s,finish":     `position 8: "0s" is no time`,
		"f@time>1s:2,finish":   `position 8: "1s:2" is no time`,
		"f@time>1s,time>2s":    "position 16: there are two times",
		"f@time=1s,finish":     `position 3: no action "time"`,
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
