package main

import (
	"strings"

	"github.com/fentry-dev/fentry/trace"
)

// reportLost says what is missing from a trace, always: numbers that are silently
// too small are worse than none.
func reportLost(a *app, t *trace.Trace) {
	l := t.Losses()
	if what := lostWords(&l, t.Header.Policy); len(what) > 0 {
		a.sayf("fentry: %s: %s; counts and times are too small%s",
			t.Dir, strings.Join(what, ", "), lostHint(t, &l))
	}
	reportSwitchedOff(a, t)
}

// lostWords says what is missing from a trace, one kind of loss after another.
func lostWords(l *trace.Losses, policy trace.Policy) []string {
	var what []string
	if l.Events > 0 {
		what = append(what, plural(l.Events, "event was lost", "events were lost"))
	}
	if l.Overwritten > 0 {
		what = append(what,
			plural(l.Overwritten, "event was overwritten by newer ones", "events were overwritten by newer ones"))
	}
	if l.Gaps > 0 && policy != trace.PolicyOverwrite { // else what was there is counted
		what = append(what, plural(uint64(l.Gaps), "gap of unknown size", "gaps of unknown size"))
	}
	if u := l.Uncounted; u != nil {
		more := ""
		if l.Events > 0 {
			more = "more "
		}
		what = append(what, "an unknown number of "+more+"events was lost "+interval(u))
	}
	return what
}

// interval says when something was.
func interval(u *trace.Interval) string {
	from := duration(uint64(max(u.From, 0)))
	if u.To == trace.NoEnd {
		return "from " + from + " on"
	}
	return "between " + from + " and " + duration(uint64(max(u.To, 0)))
}

// lostHint says what may help against losses. A program that writes its trace
// itself has no buffer, and a buffer does not help against a disk that is full.
func lostHint(t *trace.Trace, l *trace.Losses) string {
	if t.Header.Layout != trace.LayoutPacked || l.Uncounted != nil || l.Events == 0 && l.Gaps == 0 {
		return ""
	}
	return " (a larger buffer: record -b SIZE)"
}

// infoInterval is a time in which events were lost that nobody counted.
type infoInterval struct {
	From int64  `json:"from_ns"`
	To   *int64 `json:"to_ns"` // null: the end is not known
}

// infoLosses are what info says of events that are not in the trace.
type infoLosses struct {
	Lost        uint64        `json:"lost"`
	Overwritten uint64        `json:"overwritten"`
	Gaps        int           `json:"gaps"`
	Uncounted   *infoInterval `json:"uncounted"` // null: all that were lost are counted
	words       []string
}

func newInfoLosses(t *trace.Trace) infoLosses {
	l := t.Losses()
	in := infoLosses{Lost: l.Events, Overwritten: l.Overwritten, Gaps: l.Gaps, words: lostWords(&l, t.Header.Policy)}
	if u := l.Uncounted; u != nil {
		in.Uncounted = &infoInterval{From: u.From}
		if u.To != trace.NoEnd {
			in.Uncounted.To = &u.To
		}
	}
	return in
}

// String says it to people.
func (in *infoLosses) String() string {
	if len(in.words) == 0 {
		return "0 events"
	}
	return strings.Join(in.words, ", ")
}
