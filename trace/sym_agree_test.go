package trace_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/names"
	"github.com/fentry-dev/fentry/trace"
)

// TestSymAgrees reads a .sym file as recorders write them.
func TestSymAgrees(t *testing.T) {
	file := names.Table{
		Path: "/bin/tab\tand\\more", BuildID: []byte{0xde, 0xad}, Image: 0x77, Machine: "x86_64", Entry: 0x401000,
		Funcs: []names.Func{
			{ID: 0, Addr: 0x400f00, Size: 4, Kind: "plain", Name: "untraced"},
			{ID: 1, Addr: 0x401000, Size: 0x40, Site: 0x401004, Kind: "fentry-call", Name: "main"},
			{ID: 2, Addr: 0x402000, Site: 0x402000, Kind: "patchable", Name: "odd\nname\x7f\\"},
			{ID: 3, Addr: 0x403000, Size: 1, Site: 0x403000, Kind: "plain"},
			{ID: 9, Addr: 0x404000, Size: 1, Site: 0x404000, Kind: "plain", Name: "ünï\xff"},
		},
	}
	dir := t.TempDir()
	var b bytes.Buffer
	if err := names.Write(&b, &file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, trace.ImageID(file.Image).String()+trace.SymExt), b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	var events bytes.Buffer
	w, err := trace.NewWriter(&events, trace.Header{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteImage(trace.Image{ID: trace.ImageID(file.Image)}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, trace.EventsFile), events.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if len(tr.Problems) > 0 {
		t.Fatal(tr.Problems)
	}
	if im := tr.Images[0]; im.Path != file.Path || im.BuildID != "dead" || im.Machine != "x86_64" || im.Sites != 9 {
		t.Errorf("%+v", im)
	}
	for _, e := range file.Funcs[1:] {
		if d := cmp.Diff(e, tr.Func(trace.FuncID{ID: e.ID})); d != "" {
			t.Errorf("id %d: %s", e.ID, d)
		}
	}
}
