//go:build linux

package session

import (
	"testing"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/fixture"
	"github.com/fentry-dev/fentry/trace"
)

// Whatever a traced program does to the memory that it shares with the recorder, it ends
// as it would have, and so does the recorder, whose trace holds what was written honestly.
func TestHostileProgram(t *testing.T) {
	for _, tt := range []struct {
		how, stdout string // of what the program did: 0, -1 if the kernel refused it
	}{
		{"truncate", "-1\n"},
		{"grow", "-1\n"},
		{"punch", "0\n"},
		{"seal", "0\n"},
		{"future", "0\n"},
		{"headers", "0\n"},
	} {
		t.Run(tt.how, func(t *testing.T) {
			t.Parallel()
			r := recorderCmd{Buffer: 16 * format.ChunkSize}
			x := r.run(t, fixture.CC(t, "testdata/pool"), "attack", tt.how)
			if x.code != 8 || x.stdout != tt.stdout {
				t.Errorf("status %d, output %q, want %q: %s", x.code, x.stdout, tt.stdout, x.stderr)
			}
			honest := 0
			for _, c := range x.chunks {
				if len(c.words) == perChunk && c.kind == uint16(trace.ChunkEvents) && c.number < 3 {
					honest++
				}
			}
			if honest < 4 {
				t.Errorf("%d of 4 chunks kept: %s", honest, x.stderr)
			}
			tr, err := trace.Open(r.Dir)
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			if tr.Ending != trace.EndWritten || tr.Chunks != len(x.chunks) {
				t.Errorf("ending %v, %d chunks, %d by the letter of the format", tr.Ending, tr.Chunks, len(x.chunks))
			}
		})
	}
}
