package ndjson_test

import (
	"log"
	"os"
	"path/filepath"

	"github.com/fentry-dev/fentry/export/ndjson"
	"github.com/fentry-dev/fentry/trace"
)

func Example() {
	dir, err := os.MkdirTemp("", "ndjson")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	f, err := os.Create(filepath.Join(dir, trace.EventsFile))
	if err != nil {
		log.Fatal(err)
	}
	w, err := trace.NewWriter(f, trace.Header{Counter: 1000, CounterHz: 1e9})
	if err != nil {
		log.Fatal(err)
	}
	k := w.Task(trace.TaskID{PID: 4711, TID: 4711, Image: 1, Comm: "worker"})
	k.Mark(1500, 42, "request 7")
	if err := k.Flush(); err != nil {
		log.Fatal(err)
	}
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}

	t, err := trace.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	j := ndjson.New(os.Stdout, t)
	if err := t.Walk(trace.WalkOptions{}, j.Event); err != nil {
		log.Fatal(err)
	}
	if err := j.Close(); err != nil {
		log.Fatal(err)
	}
	// Output: {"time":500,"event":"mark","pid":4711,"tid":4711,"comm":"worker","task":0,"depth":0,"count":42,"text":"request 7"}
}
