//go:build linux

package tracefs

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/trace"
)

// TestConsole: nothing waits for a console that nobody reads, and what it has no room for is counted.
func TestConsole(t *testing.T) {
	m := &made{t: t, now: 1000, functions: []Function{{Image: 5, ID: 1, Name: "main"}}}
	m.events = func(w *trace.Writer) {
		if err := w.WriteImage(trace.Image{ID: 5, Sites: 1}); err != nil {
			t.Fatal(err)
		}
	}
	fs, err := newFS(m)
	if err != nil {
		t.Fatal(err)
	}
	began, read := make(chan bool), make(chan bool)
	var got [][]byte
	fs.console = newConsole(func(text []byte) {
		if len(got) == 0 {
			close(began)
			<-read
		}
		got = append(got, text)
	})
	go fs.console.run()
	dump := func() {
		t.Helper()
		fs.top.dumps = []int{-1}
		tr, err := fs.open()
		if err != nil || len(fs.top.dumps) != 0 {
			t.Fatal(err)
		}
		tr.Close()
	}
	dump()
	<-began                                                  // it is being written, and that does not end
	fs.console.put(bytes.Repeat([]byte("x"), mostConsole+1)) // alone it may be of any size
	dump()
	fs.console.put([]byte("small"))
	close(read)
	fs.console.end(time.Minute)
	if len(got) != 3 || !strings.HasPrefix(string(got[0]), "# tracer: ") || len(got[1]) != mostConsole+1 ||
		string(got[2]) != "# dumps for which there was no room: 2\n" {
		t.Errorf("%d texts: %.100q", len(got), got)
	}
}

// TestConsoleEnds: what is there is written before the end, which does not wait for ever.
func TestConsoleEnds(t *testing.T) {
	never := make(chan bool)
	c := newConsole(func([]byte) { <-never })
	go c.run()
	c.put([]byte("text"))
	c.end(time.Millisecond)
	close(never)
	var none *console
	none.put([]byte("text"))
	none.end(time.Minute)
}

// TestDumpAgain: a dump that could not be made is made later, and the console says so, once.
func TestDumpAgain(t *testing.T) {
	s, fs := newShortCalls(t, tracerFunction)
	var got bytes.Buffer
	fs.console = newConsole(func(text []byte) { got.Write(text) })
	s.n = 22
	tr, err := fs.open()
	if err != nil {
		t.Fatal(err)
	}
	tr.Close()
	fs.top.dumps = []int{-1, -1}
	for range 2 {
		err := fs.top.dump(tr) // of a copy that cannot be read
		if err == nil || len(fs.top.dumps) != 2 {
			t.Fatalf("%v, %d to be made", err, len(fs.top.dumps))
		}
		fs.fails(err)
	}
	if tr, err = fs.open(); err != nil {
		t.Fatal(err)
	}
	tr.Close()
	fs.fails(nil)
	go fs.console.run()
	fs.console.end(time.Minute)
	if text := got.String(); strings.Count(text, "# tracer: function\n") != 2 || strings.Count(text, "# no dump, or no snapshot: ") != 1 {
		t.Errorf("%s", text)
	}
}
