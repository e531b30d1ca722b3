package main

import (
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/fentry-dev/fentry/trace"
)

// progress is one line on a terminal that says how far a long command is. It is
// shown when nothing else is: data going to the same terminal is progress enough.
// A nil progress does nothing.
type progress struct {
	bars *mpb.Progress
	bar  *mpb.Bar
	n    uint
}

// progressDelay keeps short commands quiet.
const progressDelay = 500 * time.Millisecond

// progress starts a line for reading a trace, or returns nil.
func (a *app) progress(label string, t *trace.Trace) *progress {
	if a.quiet || !isTerminal(a.stderr) || isTerminal(a.stdout) || t.Info == nil || t.Info.Duration <= 0 || len(t.Tasks) == 0 {
		return nil
	}
	wait := make(chan struct{})
	time.AfterFunc(progressDelay, func() { close(wait) })
	p := &progress{bars: mpb.New(mpb.WithOutput(a.stderr), mpb.WithWidth(40), mpb.WithRefreshRate(200*time.Millisecond), mpb.WithRenderDelay(wait))}
	p.bar = p.bars.New(t.Tasks[0].Start+int64(t.Info.Duration), mpb.BarStyle(), mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(label+" ")),
		mpb.AppendDecorators(decor.Percentage(), decor.Name(" "), decor.AverageETA(decor.ET_STYLE_GO)))
	return p
}

// watch moves the bar by the time of the events that pass.
func (p *progress) watch(emit func(*trace.Event) error) func(*trace.Event) error {
	if p == nil {
		return emit
	}
	return func(ev *trace.Event) error {
		if p.n++; p.n%(1<<16) == 0 {
			p.bar.SetCurrent(ev.Time)
		}
		return emit(ev)
	}
}

// done takes the line away.
func (p *progress) done() {
	if p == nil {
		return
	}
	p.bar.Abort(true)
	p.bars.Wait()
}
