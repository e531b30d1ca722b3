//go:build linux

package tracefs

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/fentry-dev/fentry/export/ftrace"
	"github.com/fentry-dev/fentry/trace"
)

// function_profile_enabled and trace_stat: how often functions were called, and how long calls took, by thread. The
// kernel counts in the call. Here calls are counted as they are found in the buffer, a few times a tick, so the buffer
// must hold what happens in between: calls that it did not are not counted, as there is no telling which they were.
// The filters of functions apply, and tracing_on does not, as in the kernel.

// profile is the counts. The zero value is off, and has none.
type profile struct {
	on     bool
	stream *trace.Stream
	from   uint64                      // counter: what is older has been counted
	began  int64                       // time: what is older is not to be counted
	counts map[int]map[int]*profileRow // by number of the thread, and function
}

// profileRow is what is known of a function in a thread.
type profileRow struct {
	hits    uint64
	ended   uint64
	time    int64   // ns
	squares float64 // ns²
}

// setProfile is a write to function_profile_enabled: it begins anew when it is switched on.
func (fs *FS) setProfile(s string) error {
	n, err := parseNumber(s)
	switch on := n != 0; {
	case err != nil:
		return err
	case on == fs.profile.on:
		return nil
	case on:
		fs.profile = profile{on: true, stream: &trace.Stream{}, from: fs.target.Now(), counts: make(map[int]map[int]*profileRow)}
		fs.profile.began = -1
		return fs.install()
	}
	err = fs.count()
	fs.profile.on, fs.profile.stream = false, nil
	if err != nil {
		return err
	}
	return fs.install()
}

// count counts what has happened since.
func (fs *FS) count() error {
	p := &fs.profile
	if !p.on {
		return nil
	}
	now := fs.target.Now()
	t, err := fs.copy(p.from)
	if err != nil {
		return err
	}
	defer t.Close()
	fs.look(t)
	until := t.Clock.Time(now)
	if p.began < 0 {
		p.began = t.Clock.Time(p.from)
	}
	p.from = t.Clock.Counter(max(0, until-int64(2*tick)))
	of := fs.functions.lookup(t)
	epochs := &view{in: fs.top, t: t}
	epochs.begin()
	return p.stream.Walk(t, trace.StreamOptions{}, func(ev *trace.Event) error {
		if !counts(ev) && ev.Kind != trace.Entry || ev.Time < p.began {
			return nil
		}
		if fn := of(ev.Func); fn >= 0 && epochs.settings(ev.Time).chosen(fn) {
			p.add(fs.cpu(ev.Task), fn, ev)
		}
		return nil
	})
}

// add counts an event.
func (p *profile) add(cpu, fn int, ev *trace.Event) {
	rows := p.counts[cpu]
	if rows == nil {
		rows = make(map[int]*profileRow)
		p.counts[cpu] = rows
	}
	r := rows[fn]
	if r == nil {
		r = &profileRow{}
		rows[fn] = r
	}
	switch {
	case ev.Kind == trace.Entry:
		r.hits++
	case ev.Flags&trace.FlagNoEntry == 0:
		r.ended++
		r.time += ev.Dur
		r.squares += float64(ev.Dur) * float64(ev.Dur)
	}
}

// profileOf is the text of trace_stat/functionN, as the kernel's function_stat_show writes it.
func (fs *FS) profileOf(cpu int) ([]byte, error) {
	if err := fs.count(); err != nil {
		return nil, err
	}
	type named struct {
		name string
		*profileRow
	}
	var rows []named
	for fn, r := range fs.profile.counts[cpu] {
		if r.hits > 0 && r.avg() >= fs.top.epochs.now().threshold {
			rows = append(rows, named{fs.functions.all[fn].Name, r})
		}
	}
	slices.SortFunc(rows, func(a, b named) int { return cmp.Or(cmp.Compare(b.time, a.time), cmp.Compare(a.name, b.name)) })
	var b bytes.Buffer
	b.WriteString("  Function                               Hit    Time            Avg             s^2\n" +
		"  --------                               ---    ----            ---             ---\n")
	for _, r := range rows {
		name := []rune(r.name)
		fmt.Fprintf(&b, "  %-30s  %10d    ", string(name[:min(len(name), 30)]), r.hits)
		line := ftrace.AppendDuration(b.AvailableBuffer(), r.time)
		line = ftrace.AppendDuration(append(line, "    "...), r.avg())
		line = ftrace.AppendDuration(append(line, "    "...), r.variance())
		b.Write(append(line, '\n'))
	}
	return b.Bytes(), nil
}

// avg is how long calls took, in ns.
func (r *profileRow) avg() int64 {
	if r.ended == 0 {
		return 0
	}
	return r.time / int64(r.ended)
}

// variance is s^2 as the kernel has it, in 1000 ns².
func (r *profileRow) variance() int64 {
	if r.ended < 2 {
		return 0
	}
	n, sum := float64(r.ended), float64(r.time)
	return int64(min(max(0, (n*r.squares-sum*sum)/(n*(n-1)*1000)), math.MaxInt64/2))
}
