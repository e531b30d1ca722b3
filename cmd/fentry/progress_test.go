package main

import (
	"bytes"
	"testing"
	"time"
)

// The line comes after a delay, not more often than it can be read, says share and rest, and is taken away.
func TestProgress(t *testing.T) {
	var b bytes.Buffer
	since := time.Unix(100, 0)
	p := &progress{w: &b, label: "replay", start: 1000, end: 2000, since: since, next: since.Add(progressDelay)}
	p.show(1100, since.Add(progressDelay/2))
	p.done()
	if b.Len() != 0 {
		t.Errorf("a short command printed %q", b.String())
	}
	p.show(1250, since.Add(2*time.Second))
	p.show(1300, since.Add(2*time.Second+progressEvery/2))
	const want = "\rreplay [==========------------------------------]  25 % 6s\x1b[K"
	if b.String() != want {
		t.Errorf("printed %q, want %q", b.String(), want)
	}
	b.Reset()
	p.show(900, since.Add(3*time.Second))
	p.show(9000, since.Add(4*time.Second))
	p.done()
	const rest = "\rreplay [----------------------------------------]   0 % \x1b[K" +
		"\rreplay [========================================] 100 % 0s\x1b[K\r\x1b[K"
	if b.String() != rest {
		t.Errorf("printed %q, want %q", b.String(), rest)
	}
}
