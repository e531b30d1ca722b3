//go:build linux

package session

import (
	"os"
	"testing"

	"github.com/fentry-dev/fentry/session/internal/drain"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/trace"
)

// TestExesInTurn: only files that are open count against the limit, so a session of many
// programs keeps the file of each; what programs ask for beyond reason is not remembered.
func TestExesInTurn(t *testing.T) {
	e := newExes(procfs.SharedFile{}, nil, nil)
	keep := func(id trace.ImageID) {
		t.Helper()
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		e.open++ // as handle does
		if a := e.keep(id, f); a != drain.Done {
			t.Fatalf("image %d: answer %d", id, a)
		}
	}
	for id := range trace.ImageID(2 * mostExes) {
		keep(id)
		f := e.take(id)
		if f == nil || e.take(id) != nil || e.full() {
			t.Fatalf("image %d: %v, full: %v", id, f, e.full())
		}
		f.Close()
	}
	for id := range trace.ImageID(mostExes) {
		keep(2*mostExes + id)
	}
	if !e.full() {
		t.Errorf("%d files are open", e.open)
	}
	e.close()
	e = newExes(procfs.SharedFile{}, nil, nil)
	for id := range trace.ImageID(mostImages) {
		e.files[id] = nil
	}
	if !e.full() {
		t.Error("any number of images is remembered")
	}
}
