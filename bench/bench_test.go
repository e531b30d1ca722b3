package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestParseCall(t *testing.T) {
	m, err := parseCall("call 19.8 18.0\nrdtsc 8.1 8.0\nrdtsc2 15.5 15.4\ncycle 0.4 0.4\n")
	if err != nil || m["call"] != 19.8 || m["rdtsc2"] != 15.5 {
		t.Errorf("%v, %v", m, err)
	}
	for _, bad := range []string{"", "call x 1\n", "call 1 1\nrdtsc 1 1\n", "call 1 1\nrdtsc 1 1\nrdtsc2 1 1\n"} {
		if m, err := parseCall(bad); err == nil {
			t.Errorf("%q: %v, want an error", bad, m)
		}
	}
}

func TestParseOff(t *testing.T) {
	m, err := parseOff("call 1.593 1.535\n")
	if err != nil || m["call"] != 1.593 {
		t.Errorf("%v, %v", m, err)
	}
	for _, bad := range []string{"", "call 1\n", "call x 1\n", "fall 1 1\n"} {
		if m, err := parseOff(bad); err == nil {
			t.Errorf("%q: %v, want an error", bad, m)
		}
	}
}

func TestParseGo(t *testing.T) {
	m, err := parseGo("answers 12ab\nrequest 12.5 us\ncall 3.5 2.5\n", "request")
	if err != nil || m["request"] != 12.5 || m["call"] != 3.5 || m["call"+best] != 2.5 {
		t.Errorf("%v, %v", m, err)
	}
	for _, bad := range []string{"", "request x us\n", "request 1\n", "call 1 1\n"} {
		if m, err := parseGo(bad, "request"); err == nil {
			t.Errorf("%q: %v, want an error", bad, m)
		}
	}
}

func TestParseCalls(t *testing.T) {
	if n, err := parseCalls(`{"name":"a","calls":3}` + "\n" + `{"name":"b","calls":4}` + "\n"); n != 14 || err != nil {
		t.Errorf("%d events, %v; want 14", n, err)
	}
	if _, err := parseCalls("{"); err == nil {
		t.Error("half an object gives no error")
	}
}

func TestMiddle(t *testing.T) {
	s := []sample{{wall: 3 * time.Second}, {wall: time.Second}, {wall: 2 * time.Second}}
	if med, least := middle(s, wallOf); med != 2 || least != 1 {
		t.Errorf("median %v, minimum %v; want 2 and 1", med, least)
	}
}

func TestCyclesAbove(t *testing.T) {
	round := func(call, cycle float64) map[string]float64 { return map[string]float64{"call": call, "cycle": cycle} }
	// The second round ran at half the speed.
	got := cyclesAbove([]map[string]float64{round(2, .5), round(4, 1)}, []map[string]float64{round(8, .5), round(16, 1), round(1, 1)})
	if got != 12 {
		t.Errorf("%v cycles, want 12", got)
	}
}

func TestCompareCalls(t *testing.T) {
	calls := func(v ...float64) (m []map[string]float64) {
		for _, c := range v {
			m = append(m, map[string]float64{"call": c})
		}
		return m
	}
	// The second round ran at half the speed: its ratios are those of the others.
	got := compareCalls(calls(1, 2, 1), calls(11, 22, 11), calls(41, 82, 31))
	if want := (comparison{whole: 41, times: 41. / 11, net: 40, netTimes: 4}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestCallgrindTotal(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	for text, want := range map[string]int64{"events: Ir\nsummary: 274889\n\ntotals: 274889\n": 274889, "events: Ir\n": 0} {
		if err := os.WriteFile(log, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if n, err := callgrindTotal(log, ""); n != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}

func TestTimesOf(t *testing.T) {
	of := func(v ...int) (s []sample) {
		for _, w := range v {
			s = append(s, sample{wall: time.Duration(w) * time.Second})
		}
		return s
	}
	// The second round was slow for both.
	if x := timesOf(of(3, 30, 4), of(1, 10, 1), wallOf); x != 3 {
		t.Errorf("%v times, want 3", x)
	}
	if x := timesOf(of(3), of(0), wallOf); x != 0 {
		t.Errorf("%v times of nothing", x)
	}
}
