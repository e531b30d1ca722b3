package format_test

import (
	"testing"

	"github.com/fentry-dev/fentry/internal/format"
)

func TestIsTraceFile(t *testing.T) {
	for name, want := range map[string]bool{
		"events": true, "chunks": true, "info.json": true, "0123456789abcdef.sym": true,
		"": false, "event": false, "vents": false, "events ": false, "events\x00": false, "events\x00chunks": false,
		"EVENTS": false, ".sym": false, "notes.sym": false, "0123456789ABCDEF.sym": false, "0123456789abcde.sym": false,
		"0123456789abcdef0.sym": false, "0123456789abcdef.syms": false, "x": false, "..": false,
	} {
		if got := format.IsTraceFile(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}

func TestTracers(t *testing.T) {
	names := format.Tracers()
	if len(names) <= format.ModeProfile || names[format.ModeGraph] != "function_graph" ||
		names[format.ModeFunction] != "function" || names[format.ModeProfile] != "profile" {
		t.Errorf("%q", names)
	}
}
