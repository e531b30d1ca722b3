package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// progress is one line on a terminal that says how far a long command is. It is
// shown when nothing else is: data going to the same terminal is progress enough.
// A nil progress does nothing.
type progress struct {
	w          io.Writer
	label      string
	start, end int64     // times of the trace
	since      time.Time // when the command started
	next       time.Time // when the line is written again
	n          uint
	shown      bool
}

const (
	progressDelay = 500 * time.Millisecond // keeps short commands quiet
	progressEvery = 200 * time.Millisecond
	progressWidth = 40 // of the bar, in columns
)

// progress starts a line for reading a trace, or returns nil.
func (a *app) progress(label string, t *trace.Trace) *progress {
	if a.quiet || !isTerminal(a.stderr) || isTerminal(a.stdout) ||
		t.Info == nil || t.Info.Duration <= 0 || len(t.Tasks) == 0 {
		return nil
	}
	start, now := t.Tasks[0].Start, time.Now()
	return &progress{
		w: a.stderr, label: label, start: start, end: start + int64(t.Info.Duration),
		since: now, next: now.Add(progressDelay),
	}
}

// watch moves the bar by the time of the events that pass.
func (p *progress) watch(emit func(*trace.Event) error) func(*trace.Event) error {
	if p == nil {
		return emit
	}
	return func(ev *trace.Event) error {
		if p.n++; p.n%(1<<16) == 0 {
			p.show(ev.Time, time.Now())
		}
		return emit(ev)
	}
}

// show writes the line again when it is time to: the share done, and how long the rest will take at this pace.
func (p *progress) show(at int64, now time.Time) {
	if now.Before(p.next) {
		return
	}
	p.next, p.shown = now.Add(progressEvery), true
	done := min(max(float64(at-p.start)/float64(p.end-p.start), 0), 1)
	rest := ""
	if done > 0 {
		rest = (time.Duration(float64(now.Sub(p.since))*(1-done)/done) + time.Second/2).Truncate(time.Second).String()
	}
	full := int(done * progressWidth)
	bar := strings.Repeat("=", full) + strings.Repeat("-", progressWidth-full)
	fmt.Fprintf(p.w, "\r%s [%s] %3.0f %% %s\x1b[K", p.label, bar, done*100, rest)
}

// done takes the line away.
func (p *progress) done() {
	if p != nil && p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// preparing returns what shows on a terminal which file the program waits for, nil if nothing is to be shown. It is not
// shown as long as the program has not waited for long, as what the program itself has written there may be in the line.
func (a *app) preparing() func(file string) {
	if a.quiet || !isTerminal(a.stderr) {
		return nil
	}
	p := &preparing{w: a.stderr}
	return p.file
}

// preparing is which file a program waits for. Its methods are safe for concurrent use.
type preparing struct {
	w io.Writer

	mu    sync.Mutex
	line  string      // to be shown
	files int         // how many there were
	now   int         // how many are prepared now
	since time.Time   // when the program began to wait
	end   time.Time   // when it last went on
	timer *time.Timer // shows the line; nil: there was none
	shown bool
}

// file notes that a file is prepared from now on; "": that one is no more.
func (p *preparing) file(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if name == "" {
		if p.now--; p.now == 0 {
			p.end = now
			p.hide()
		}
		return
	}
	if p.files++; p.now == 0 && now.Sub(p.end) > progressEvery { // files that follow each other are one wait
		p.since = now
	}
	p.now++
	p.line = fmt.Sprintf("preparing file %d: %s", p.files, safetext.Line(filepath.Base(name)))
	if p.timer != nil {
		p.timer.Stop()
	}
	p.timer = time.AfterFunc(progressDelay-now.Sub(p.since), p.show)
}

// show shows the line.
func (p *preparing) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now > 0 {
		p.shown = true
		fmt.Fprintf(p.w, "\r%s\x1b[K", p.line)
	}
}

// hide takes the line away.
func (p *preparing) hide() {
	p.timer.Stop()
	if p.shown {
		p.shown = false
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
