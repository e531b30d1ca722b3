package view

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/sample"
	"github.com/fentry-dev/fentry/trace"
)

// The page says the same about a trace whose chunks are compressed.
func TestCompressed(t *testing.T) {
	tr := sample.Random(t, rand.New(rand.NewPCG(2, 7)), 100_000)
	want := answersOf(t, newViewer(t, tr))
	if s, err := trace.Compress(tr.Dir); err != nil || s.Chunks == 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	small, err := trace.Open(tr.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	if small.Compressed == 0 {
		t.Fatal("no chunk is compressed")
	}
	if diff := cmp.Diff(want, answersOf(t, newViewer(t, small))); diff != "" {
		t.Errorf("(-plain +compressed):\n%s", diff)
	}
}

// answersOf asks a viewer one question of each kind.
func answersOf(t *testing.T, v *Viewer) (texts []string) {
	add := func(answer any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b))
	}
	all := Scope{To: v.end, Task: -1, Process: -1}
	part := Scope{From: v.end / 3, To: v.end / 2, Task: 0, Process: -1}
	add(v.About(), nil)
	for level := range tileLevels {
		if last := v.end / (tileUnits << level); last < 1000 {
			add(v.Tile(0, level, last/2, false))
		}
	}
	for _, s := range []Scope{all, part} {
		add(v.Functions(s))
		add(v.Flames(s, false))
		add(v.Slowest(s, 50))
		add(v.Find(t.Context(), s, "f", false))
		add(v.Find(t.Context(), s, "f", true))
	}
	return texts
}
