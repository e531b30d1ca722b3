package main

import (
	"fmt"

	"github.com/fentry-dev/fentry/trace"
)

// nothingKnown tells whether there is nothing to show of a total's parts.
func nothingKnown(unknown, total int64) bool { return unknown > 0 && unknown == total }

// partCell is a part of a total for people: time on a processor or off it. What is known in part is a lower bound.
func partCell(part, unknown, total int64) string {
	switch {
	case part < 0 || nothingKnown(unknown, total):
		return "-"
	case unknown > 0:
		return ">=" + durationCell(part)
	}
	return durationCell(part)
}

// explainWaits says what columns of time on a processor and off it rest on. partly says that some of it is not known.
func explainWaits(a *app, t *trace.Trace, partly bool) {
	w := t.Waiting()
	switch {
	case w.Source == "":
		a.notef("fentry: %s: cpu and wait are not known: %s", t.Dir, w.Reason)
		return
	case !partly:
		a.notef("fentry: %s: cpu and wait are by the kernel's record of task switches (%s)", t.Dir, w.Source)
		return
	}
	why := "the record does not have all of the time of all threads"
	if w.Lost > 0 {
		why = fmt.Sprintf("%s of it lost", plural(w.Lost, "entry was", "entries were"))
	}
	a.notef("fentry: %s: cpu and wait are by the kernel's record of task switches (%s); %s: >= is at least, - not known",
		t.Dir, w.Source, why)
}

// infoWaits is what info says of the time of threads on a processor and off it.
type infoWaits struct {
	Source string `json:"source,omitempty"`
	Reason string `json:"reason,omitempty"`
	Lost   uint64 `json:"lost"`
}

// newInfoWaits returns nil for a trace without times.
func newInfoWaits(t *trace.Trace) *infoWaits {
	if untimed(t) != "" {
		return nil
	}
	w := t.Waiting()
	return &infoWaits{w.Source, w.Reason, w.Lost}
}

// String says it to people.
func (in *infoWaits) String() string {
	switch {
	case in == nil:
		return ""
	case in.Source == "":
		return "not known: " + in.Reason
	case in.Lost > 0:
		return fmt.Sprintf("by the kernel's task switches (%s), of which %s lost",
			in.Source, plural(in.Lost, "record was", "records were"))
	}
	return fmt.Sprintf("by the kernel's task switches (%s)", in.Source)
}
