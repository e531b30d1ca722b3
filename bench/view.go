package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// view prints how long the page of a trace takes to open and to answer: the questions are those of a browser, asked as
// it asks them, of places nobody has asked for before. -trace has an existing trace in place of one of Lua.
func (b *bench) view() error {
	data := b.trace
	if data == "" {
		var err error
		if data, err = b.recordLua(map[bool]string{false: "29", true: "1"}[b.quick], "--compress", "auto"); err != nil {
			return err
		}
		defer os.RemoveAll(data)
	}
	p, first, err := b.openPage(data)
	if err != nil {
		return err
	}
	p.close()
	_, events, err := b.traceSize(data)
	if err != nil {
		return err
	}
	fmt.Printf("The page about %.1f million events; wanted: opens in 2 s, pans and zooms within 50 ms; the first time, with "+
		"what was missing of the index, %.2f s\n", float64(events)/1e6, first.Seconds())
	times := map[string][]time.Duration{}
	for range b.rounds {
		p, opened, err := b.openPage(data)
		if err != nil {
			return err
		}
		times["open"] = append(times["open"], opened)
		err = errors.Join(p.use(times), p.close())
		if err != nil {
			return err
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "median ms\t95 %\tworst\tasked\t\t")
	for _, name := range questions {
		t := times[name]
		if len(t) == 0 {
			continue
		}
		slices.Sort(t)
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		fmt.Fprintf(w, "%.1f\t%.1f\t%.1f\t%d\t %s\t\n", ms(t[len(t)/2]), ms(t[len(t)*95/100]), ms(t[len(t)-1]), len(t), name)
	}
	return w.Flush()
}

// What is measured, in the order of the table.
var questions = []string{
	"open", "zoom, what is there at once", "zoom, all of it", "pan, what is there at once", "pan, all of it",
	"jump, what is there at once", "jump, all of it",
	"flame graph of all, quick", "flame graph of all", "flame graph of a hundredth", "functions of all",
	"functions of a hundredth", "callers of all", "callers of a hundredth", "slowest 100 of all", "slowest 100 of one function",
	"find next", "find previous", "find what is not there", "one call",
}

// A page is a server of one, and who asks it.
type page struct {
	cmd    *exec.Cmd
	url    string
	stderr strings.Builder
	rng    *rand.Rand
	about  struct {
		Begin, End int64
		Tasks      []struct{ Start, End int64 }
		Units      int64
	}
}

// openPage starts the server and waits until the page could draw its first tiles.
func (b *bench) openPage(data string) (*page, time.Duration, error) {
	p := &page{rng: rand.New(rand.NewPCG(1, 2))}
	start := time.Now()
	p.cmd = exec.CommandContext(b.ctx, b.fentry, "view", "--no-browser", "-i", data)
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(os.Interrupt) }
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, 0, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, 0, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("fentry view: %w", err), p.close())
	}
	p.url = strings.TrimSpace(line)
	err = p.ask(&p.about, "about?")
	if err == nil {
		err = p.screen(p.about.Begin, p.about.End, true, nil)
	}
	if err != nil {
		return nil, 0, errors.Join(err, p.close())
	}
	return p, time.Since(start), nil
}

func (p *page) close() error {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("fentry view: %w\n%s", err, tail(p.stderr.String()))
	}
	return nil
}

// ask asks one question.
func (p *page) ask(to any, format string, args ...any) error {
	question := fmt.Sprintf(format, args...)
	resp, err := http.Get(p.url + "api/" + question)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", question, resp.Status, text)
	}
	if to == nil {
		return nil
	}
	return json.Unmarshal(text, to)
}

const (
	columns = 1500 // of a screen
	tracks  = 8    // tasks that a screen has room for
)

// A tileKey is what a tile is asked for by.
type tileKey struct {
	task, level int
	index       int64
}

// screen asks for the tiles that a screen needs, three at a time as the page does: what is there at once, and those
// that this was only a part of in rest.
func (p *page) screen(from, to int64, quick bool, rest *[]tileKey) error {
	level := 0
	for (to-from)/columns>>(level+1) > 0 {
		level++
	}
	width := p.about.Units << level
	var keys []tileKey
	for task, k := range p.about.Tasks[:min(len(p.about.Tasks), tracks)] {
		for i := max(from, 0) / width; i <= max(min(to, p.about.End), 0)/width; i++ {
			if i*width <= k.End && (i+1)*width > k.Start {
				keys = append(keys, tileKey{task, level, i})
			}
		}
	}
	return p.tiles(keys, quick, 3, rest)
}

// tiles asks for tiles, some at a time.
func (p *page) tiles(keys []tileKey, quick bool, sideBySide int, rest *[]tileKey) error {
	question := "tile?task=%d&level=%d&tile=%d"
	if quick {
		question += "&quick=1"
	}
	var mu sync.Mutex
	var all error
	var group sync.WaitGroup
	turns := make(chan struct{}, sideBySide)
	for _, key := range keys {
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			var tile struct{ Partial bool }
			err := p.ask(&tile, question, key.task, key.level, key.index)
			mu.Lock()
			defer mu.Unlock()
			all = errors.Join(all, err)
			if tile.Partial && rest != nil {
				*rest = append(*rest, key)
			}
		})
	}
	group.Wait()
	return all
}

// use does what a person does with the page, and adds what each took.
func (p *page) use(times map[string][]time.Duration) error {
	timed := func(name string, fn func() error) error {
		start := time.Now()
		if err := fn(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		times[name] = append(times[name], time.Since(start))
		return nil
	}
	look := func(name string, from, to int64) error {
		var rest []tileKey
		start := time.Now()
		if err := timed(name+", what is there at once", func() error { return p.screen(from, to, true, &rest) }); err != nil {
			return err
		}
		err := p.tiles(rest, false, 2, nil)
		times[name+", all of it"] = append(times[name+", all of it"], time.Since(start))
		return err
	}
	begin, length := p.about.Begin, p.about.End-p.about.Begin
	from := begin
	for span := length; span > 1000; span /= 3 {
		if span < length {
			from += p.rng.Int64N(2 * span)
			if err := look("zoom", from, from+span); err != nil {
				return err
			}
		}
		for range 2 {
			from = min(from+span/3, p.about.End-span)
			if err := look("pan", from, from+span); err != nil {
				return err
			}
		}
		there := begin + p.rng.Int64N(length-span+1)
		if err := look("jump", there, there+span); err != nil {
			return err
		}
	}
	var table struct {
		Rows []struct{ ID, Name string }
	}
	middle := begin + p.rng.Int64N(length*9/10)
	all, part := scopeOf(begin, p.about.End), scopeOf(middle, middle+length/100)
	if err := timed("functions of all", func() error { return p.ask(&table, "functions?%s", all) }); err != nil {
		return err
	}
	if len(table.Rows) == 0 {
		return errors.New("the trace has no functions")
	}
	fn := table.Rows[len(table.Rows)/2]
	var slowest []struct {
		ID         string
		Task, Row  int
		Start, Dur int64
	}
	for _, q := range []struct {
		name, question string
		to             any
	}{
		{"functions of a hundredth", "functions?" + part, nil},
		{"flame graph of all, quick", "flames?quick=1&" + all, nil},
		{"flame graph of all", "flames?" + all, nil},
		{"flame graph of a hundredth", "flames?" + part, nil},
		{"callers of all", "around?fn=" + fn.ID + "&" + all, nil},
		{"callers of a hundredth", "around?fn=" + fn.ID + "&" + part, nil},
		{"slowest 100 of all", "slowest?n=100&" + all, &slowest},
		{"slowest 100 of one function", "slowest?n=100&fn=" + fn.ID + "&" + all, nil},
		{"find next", "find?text=" + fn.Name + "&" + scopeOf(middle, p.about.End), nil},
		{"find previous", "find?back=1&text=" + fn.Name + "&" + scopeOf(begin, middle), nil},
		{"find what is not there", "find?text=no-such-function&" + all, nil},
	} {
		if err := timed(q.name, func() error { return p.ask(q.to, "%s", q.question) }); err != nil {
			return err
		}
	}
	for _, c := range slowest[:min(len(slowest), 10)] {
		if err := timed("one call", func() error {
			return p.ask(nil, "call?task=%d&row=%d&fn=%s&%s", c.Task, c.Row, c.ID, scopeOf(c.Start, c.Start+c.Dur))
		}); err != nil {
			return err
		}
	}
	return nil
}

func scopeOf(from, to int64) string { return fmt.Sprintf("from=%d&to=%d", from, to) }
