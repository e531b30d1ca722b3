//go:build linux

package session

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/fixture"
	"github.com/fentry-dev/fentry/trace"
)

// Every event of many threads arrives compressed, too, and what a program has written when it is killed.
func TestCompressed(t *testing.T) {
	const threads, chunks = 4, 50
	for _, tt := range []struct {
		args   []string
		code   int
		events int
	}{
		{[]string{"threads", fmt.Sprint(threads), fmt.Sprint(chunks)}, 0, threads * chunks * perChunk},
		{[]string{"kill"}, 100 + int(syscall.SIGKILL), 10},
		{[]string{"daemon", "300"}, 4, 2 * perChunk},
	} {
		r := recorderCmd{Buffer: 16 << 20, Compress: CompressZstd}
		x := r.run(t, append([]string{fixture.CC(t, "testdata/pool")}, tt.args...)...)
		if x.code != tt.code || int(x.res.Events) != tt.events || eventsIn(x.chunks) != tt.events || x.res.Lost != 0 {
			t.Errorf("%v: status %d, %+v, %d events in the file, want %d: %s", tt.args, x.code, x.res, eventsIn(x.chunks),
				tt.events, x.stderr)
		}
		if full := tt.events > perChunk; full && x.res.Compressed == 0 {
			t.Errorf("%v: no chunk of %d is compressed", tt.args, x.res.Chunks)
		}
		if n := listed(t, r.Dir); n != len(x.chunks) {
			t.Errorf("%v: %d chunks in the list, %d in the file", tt.args, n, len(x.chunks))
		}
	}
}

// What a recorder has written when it is killed is a beginning of the trace: whole chunks, each readable, many of which
// are compressed.
func TestCompressedKill(t *testing.T) {
	r := recorderCmd{Buffer: 16 << 20, Compress: CompressZstd}
	cmd := r.command(t, fixture.CC(t, "testdata/pool"), "forever", "1")
	var errb bytes.Buffer
	cmd.Stderr = &errb
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	const some = 20
	for deadline := time.Now().Add(2 * time.Minute); compressedIn(r.Dir) < some; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nothing is compressed: %s", &errb)
		}
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	tr, err := trace.Open(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	// The last chunk may be cut off, and what a recorder adds at the end, the program's symbols, is not there.
	strange := slices.ContainsFunc(tr.Problems, func(p error) bool {
		return !strings.Contains(p.Error(), "cut off at the end of the file") && !strings.Contains(p.Error(), "no symbols")
	})
	if strange || tr.Ending != trace.EndMissing {
		t.Errorf("%v, ending %d", tr.Problems, tr.Ending)
	}
	if tr.Compressed < some {
		t.Errorf("%d of %d chunks are compressed, %d were before", tr.Compressed, tr.Chunks, some)
	}
	words := uint64(0)
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if ev.Kind == trace.Lost {
			return fmt.Errorf("thread %d lacks events at %d", ev.Task.TID, ev.Time)
		}
		if ev.Kind == trace.Entry || ev.Kind == trace.Exit {
			words++
		}
		return nil
	})
	whole := uint64(tr.Bytes-int64(tr.Chunks)*format.ChunkHeader) / 8
	if err != nil || words == 0 || words > whole {
		t.Errorf("%d events of %d words: %v", words, whole, err)
	}
}

// compressedIn is how many compressed chunks a trace has that is being recorded.
func compressedIn(dir string) int {
	tr, err := trace.Open(dir)
	if err != nil {
		return 0
	}
	defer tr.Close()
	return int(tr.Compressed)
}
