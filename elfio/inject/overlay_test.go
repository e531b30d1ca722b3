package inject

import (
	"bytes"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
)

func TestOverlay(t *testing.T) {
	raw := elftest.Images(t)["x86_64-exec"]
	f, err := elfio.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if off, n := f.Overlay(); n != 0 || off != uint64(len(raw)) {
		t.Errorf("%#x bytes at %#x", n, off)
	}
	if f, err = elfio.Parse(append(bytes.Clone(raw), "archive"...)); err != nil {
		t.Fatal(err)
	}
	if off, n := f.Overlay(); n != 7 || off != uint64(len(raw)) {
		t.Errorf("%#x bytes at %#x", n, off)
	}
	checkInject(t, f)
}
