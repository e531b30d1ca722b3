package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/symbol/debuginfod"
)

// symbols says where names and lines of programs come from: the files that are installed and, if the user names
// servers in DEBUGINFOD_URLS, those. What servers do not give is a note, not an error. SIGINT ends the waiting for
// them, not fentry.
func (a *app) symbols() symbol.Options {
	client := debuginfod.FromEnv(a.lookupEnv)
	if client == nil {
		return symbol.Options{}
	}
	return symbol.Options{Fetch: func(buildID []byte) (string, error) {
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT)
		defer stop()
		line := a.fetching(client)
		path, err := client.Find(ctx, buildID)
		line.done()
		switch {
		case errors.Is(err, context.Canceled):
			a.notef("fentry: names are missing: the download of debug information was interrupted")
		case err != nil && !errors.Is(err, debuginfod.ErrNotFound):
			a.notef("fentry: names can be missing: %v", err)
		}
		return path, err
	}}
}

// fetching shows the progress of downloads on a terminal, once they take a while.
func (a *app) fetching(client *debuginfod.Client) *fetchLine {
	l := &fetchLine{w: a.stderr, next: time.Now().Add(progressDelay)}
	client.Progress = nil
	if !a.quiet && isTerminal(a.stderr) {
		client.Progress = l.show
	}
	return l
}

// A fetchLine is one line on a terminal that says how much of a file has come.
type fetchLine struct {
	w     io.Writer
	next  time.Time // when the line is written again
	shown bool
}

func (l *fetchLine) show(server string, got, total int64) {
	now := time.Now()
	if now.Before(l.next) {
		return
	}
	l.next, l.shown = now.Add(progressEvery), true
	of := ""
	if total > 0 {
		of = fmt.Sprintf(" of %.1f", float64(total)/1e6)
	}
	fmt.Fprintf(l.w, "\r%s\x1b[K", oneLine(fmt.Sprintf("debug information from %s: %.1f%s MB", server, float64(got)/1e6, of)))
}

// done takes the line away.
func (l *fetchLine) done() {
	if l.shown {
		fmt.Fprint(l.w, "\r\x1b[K")
	}
}
