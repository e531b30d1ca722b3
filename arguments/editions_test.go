package arguments

import (
	"encoding/json"
	"errors"
	"testing"
)

// way is one to capture a function, as readers are told of it.
func way(t *testing.T, text string) *Capture {
	t.Helper()
	c := &Capture{}
	if err := json.Unmarshal([]byte(text), c); err != nil {
		t.Fatal(err)
	}
	return c
}

// Of each end of calls, records of different ways have different numbers of words.
func TestOtherWays(t *testing.T) {
	const first = `{"p":[{"n":"a","t":{"k":"int","s":4},"c":1},{"n":"b","t":{"k":"int","s":4},"w":1,"c":1}],"m":2}`
	c := way(t, first)
	for i, w := range []struct {
		text        string
		entry, exit int // words of its records
	}{
		{first, 2, 0},
		{`{"p":[{"n":"a","t":{"k":"int","s":4},"c":1}],"m":1}`, 1, 0},
		{`{"p":[{"n":"b","t":{"k":"int","s":4},"c":1}],"m":1}`, 3, 0},
		{`{"r":{"t":{"k":"int","s":4},"c":1},"n":1}`, 0, 1},
		{`{"r":{"t":{"k":"int","s":4},"f":"x","c":1},"n":1}`, 0, 2},
		{`{"p":[{"n":"b","t":{"k":"int","s":4},"c":1}],"m":1,"r":{"t":{"k":"int","s":4},"f":"x","c":1},"n":1}`, 3, 2},
		{`{"p":[{"n":"u","t":{}}]}`, 0, 0}, // of which nothing is captured
		{`{"r":{"t":{"k":"int","s":4},"w":1,"c":1},"e":{"t":{"k":"int","s":4},"c":1},"n":2}`, 0, 3},
	} {
		more := way(t, w.text)
		atEntry, atExit := c.Add(more)
		if atEntry != nil || atExit != nil || more.EntryWords != w.entry || more.ExitWords != w.exit {
			t.Errorf("%d: %d and %d words, want %d and %d: %v %v", i, more.EntryWords, more.ExitWords, w.entry, w.exit, atEntry, atExit)
		}
	}
	c = way(t, captured(t, c)) // as a reader has it
	for _, w := range []struct {
		entry, exit int
		param       string
		format      string
		errno       bool
	}{{2, 1, "a", "", false}, {1, 2, "a", "x", false}, {3, 3, "b", "", true}, {-1, 2, "a", "x", false}, {1, -1, "a", "", false}} {
		got := c.For(w.entry, w.exit)
		if got.ParamName(0) != w.param || got.Result.Format != w.format || (got.Errno != nil) != w.errno {
			t.Errorf("%d and %d words: %+v", w.entry, w.exit, got)
		}
	}
	// Readers that have not been told yet take nothing for what it is not.
	if got := c.For(9, 9); got.Params != nil || got.Result != nil || got.Errno != nil {
		t.Errorf("never heard of: %+v", got)
	}
	// There is only so much room, and a record without a number cannot be told from others.
	for words := 4; words <= MaxWords; words++ {
		c.Others = append(c.Others, &Capture{Params: []Value{}, EntryWords: words})
	}
	if atEntry, _ := c.Add(way(t, `{"p":[{"n":"c","t":{"k":"int","s":4},"c":1}],"m":1}`)); !errors.Is(atEntry, errWays) {
		t.Errorf("no room: %v", atEntry)
	}
	old := way(t, `{"p":[{"n":"a","t":{"k":"int","s":4},"c":1}]}`)
	if atEntry, _ := old.Add(way(t, `{"p":[{"n":"c","t":{"k":"int","s":4},"c":1}],"m":1}`)); !errors.Is(atEntry, errCounts) {
		t.Errorf("no number: %v", atEntry)
	}
	odd := way(t, `{"o":[null,{"p":[{"n":"a","t":{"k":"int","s":4},"c":1}],"m":1}],"p":[{"t":null}],"m":2}`)
	if got := odd.For(1, 1); len(got.Params) != 1 || got.ParamName(0) != "a" {
		t.Errorf("behind one that is none: %+v", got)
	}
	if got := old.For(1, -1); got != old {
		t.Errorf("no number: %+v", got)
	}
}

func captured(t *testing.T, c *Capture) string {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Words of zeros stand behind all others, and before memory.
func TestPadWords(t *testing.T) {
	ops := []Op{{Code: OpGeneral}, {Code: OpVector, From: 1}, {Code: OpString, N: 64}}
	b, _ := Encode(ops)
	got, zeros, err := PadWords(b, 5)
	want, _ := Encode([]Op{ops[0], ops[1], {Code: OpNothing}, {Code: OpNothing}, ops[2]})
	if err != nil || zeros != 2 || string(got) != string(want) {
		t.Errorf("% x with %d words of zeros, want % x: %v", got, zeros, want, err)
	}
	if same, zeros, err := PadWords(b, 3); err != nil || zeros != 0 || string(same) != string(b) {
		t.Errorf("% x: %v", same, err)
	}
	for _, n := range []int{2, MaxWords + 1} {
		if _, _, err := PadWords(b, n); !errors.Is(err, errWays) {
			t.Errorf("%d words: %v", n, err)
		}
	}
}
