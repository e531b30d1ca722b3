package inject

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
)

func TestApplyTo(t *testing.T) {
	raw := elftest.Images(t)["x86_64-shared"]
	f, err := elfio.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLayout(f, Memory{RW: 64, RWAlign: 8})
	if err != nil {
		t.Fatal(err)
	}
	in := Injection{Layout: l, RX: []byte("code")}
	text := f.Sections[f.SectionIndex(".text")]
	for i := range text.Size / 4 {
		in.Edits = append(in.Edits, elfio.RawEdit{Off: text.Off + i*4, New: []byte{byte(i), 1}})
	}
	o, err := Into(f, in)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(name, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := o.ApplyTo(w); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(got, o.Bytes()) || int64(len(got)) != o.Size() {
		t.Errorf("ApplyTo and Bytes differ (%v)", err)
	}
}
