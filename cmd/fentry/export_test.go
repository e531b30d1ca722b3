package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/export/formats"
	"github.com/fentry-dev/fentry/trace"
)

// Before the work it is said that a result is too large for what reads it, of the size that events have when they are
// not compressed; not of a part, whose size is not known, nor of formats whose readers have no limit.
func TestWarnLarge(t *testing.T) {
	large := &trace.Trace{Bytes: 8 * 11e6, Stored: 1e6}
	part := &selection{}
	part.calls.Threshold = 1000
	for _, c := range []struct {
		t      *trace.Trace
		format string
		s      *selection
		want   string
	}{
		{large, "chrome", &selection{}, "fentry: warning: about 524.5 MiB, and readers of the format are known to fail above 500.0 MiB;"},
		{&trace.Trace{Bytes: 8 * 10e6}, "chrome", &selection{}, ""},
		{large, "chrome", part, ""},
		{large, "perfetto", &selection{}, ""},
	} {
		var errs bytes.Buffer
		warnLarge(&app{stderr: &errs}, c.t, formats.Named(c.format), c.s)
		if got := errs.String(); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s, %d bytes: %q, want %q", c.format, c.t.Bytes, got, c.want)
		}
	}
}
