//go:build linux

package tracefs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/trace"
)

// made is a Target whose buffer a test fills.
type made struct {
	t         *testing.T
	functions []Function
	events    func(w *trace.Writer)
	now       uint64
	on        map[string]bool
}

func (m *made) Functions() []Function { return m.functions }

func (m *made) Switch(on func(image trace.ImageID, id uint32) bool) error {
	m.on = make(map[string]bool)
	for _, f := range m.functions {
		if on(f.Image, f.ID) {
			m.on[f.Name] = true
		}
	}
	return nil
}

func (m *made) Open(uint64) (*trace.Trace, error) {
	var b bytes.Buffer
	w, err := trace.NewWriter(&b, trace.Header{Counter: 1000, CounterHz: 1e9})
	if err != nil {
		m.t.Fatal(err)
	}
	m.events(w)
	dir := m.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, trace.EventsFile), b.Bytes(), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return trace.OpenWith(dir, trace.Options{HeaderClock: true, Resolve: func(trace.Image) (trace.SymTable, error) {
		return nil, os.ErrNotExist
	}})
}

func (m *made) Images() (all []trace.ImageID, err error) {
	for _, f := range m.functions {
		all = append(all, f.Image)
	}
	return all, nil
}

func (m *made) Moved() bool { return true }
func (m *made) Size() int64 { return 1 << 20 }
func (m *made) Now() uint64 { return m.now }

// TestLibraryComes: a filter can name a library before it is loaded.
func TestLibraryComes(t *testing.T) {
	m := &made{t: t, now: 1000, functions: []Function{{Image: 5, ID: 1, Name: "main"}}}
	image := func(w *trace.Writer, id trace.ImageID) {
		if err := w.WriteImage(trace.Image{ID: id, Sites: 2}); err != nil {
			t.Fatal(err)
		}
	}
	m.events = func(w *trace.Writer) { image(w, 5) }
	fs, err := newFS(m)
	if err != nil {
		t.Fatal(err)
	}
	word := "inf*:mod:libz.so*"
	err = fs.top.change(func(s *settings) {
		s.tracer, s.functions = tracerFunction, s.functions.clone()
		if err := fs.functions.apply(s.functions, word); err != nil {
			t.Error(err)
		}
	})
	list := func() string { return string(fs.functions.list(fs.top.epochs.now().functions, "all")) }
	if err != nil || list() != word+"\n" || len(m.on) != 0 {
		t.Fatalf("%v, %q, on: %v", err, list(), m.on)
	}
	m.functions = append([]Function{{Image: 2, ID: 1, Name: "inflate", Module: "libz.so.1"},
		{Image: 2, ID: 2, Name: "crc32", Module: "libz.so.1"}}, m.functions...)
	m.events = func(w *trace.Writer) { image(w, 5); image(w, 2) }
	tr, err := fs.open()
	if err != nil {
		t.Fatal(err)
	}
	tr.Close()
	if list() != "inflate [libz.so.1]\n" || len(m.on) != 1 || !m.on["inflate"] {
		t.Errorf("%q, on: %v", list(), m.on)
	}
	if f := fs.functions.all; len(f) != 3 || f[0].Name != "main" {
		t.Errorf("functions have other places: %v", f)
	}
}
