package stub

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/format"
)

// sharedTrace makes a trace file that programs go on with, in which ids 1 to taken are
// another image's.
func sharedTrace(t *testing.T, taken uint32) string {
	t.Helper()
	const header = 65536
	b := make([]byte, header)
	copy(b, format.FileMagic)
	le.PutUint32(b[format.HVersion:], format.Version)
	le.PutUint32(b[format.HHeaderSize:], header)
	le.PutUint32(b[format.HChunkSize:], format.ChunkSize)
	le.PutUint32(b[format.HRanges:], 256)
	le.PutUint32(b[format.HRangesRoom:], 8)
	entry := b[256:]
	le.PutUint64(entry[format.RImage:], 0x99)
	le.PutUint32(entry[format.RFirst:], 1)
	le.PutUint32(entry[format.RCount:], taken)
	path := filepath.Join(t.TempDir(), "events")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRanges: an image whose ids do not begin at 1 has the same calls, with every
// tracer; a second process of it has the same range.
func TestRanges(t *testing.T) {
	const taken = 70000
	forEach(t, func(t *testing.T, m *machine) {
		for _, v := range []struct {
			name, tracer string
			config       Config
		}{
			{"graph", "graph", Config{}},
			{"func", "func", Config{Mode: ModeFunction}},
			{"depth", "opt", Config{Depth: 1 << 30}},
			{"threshold", "opt", Config{Threshold: 1}},
			{"profile", "profile", Config{Mode: ModeProfile}},
			{"count", "count", Config{Mode: ModeCount}},
			{"order", "order", Config{Flags: FlagNoClock}},
		} {
			t.Run(v.name, func(t *testing.T) {
				t.Parallel()
				v.config.Session = sharedTrace(t, taken)
				f := buildFixture(t, "basic.c", buildOptions{on: m, tracer: v.tracer, config: v.config})
				for range 2 {
					if out, err := f.command(t).CombinedOutput(); err != nil {
						t.Fatalf("%v\n%s", err, out)
					}
				}
				ev := f.read(t, v.config.Session)
				if len(ev.maps) != 1 || ev.maps[0].first != taken+1 || int(ev.maps[0].count) != len(f.sites) {
					t.Fatalf("images %+v", ev.maps)
				}
				if v.name == "threshold" { // some calls may take no time at all
					if ev.calls["main"] != 2 || ev.calls["fib"] < 10000 {
						t.Errorf("calls %v", ev.calls)
					}
				} else if want := 2 * 21891; ev.calls["fib"] != want || ev.calls["even"]+ev.calls["odd"] != 2*100002 {
					t.Errorf("calls %v, want %d of fib", ev.calls, want)
				}
				if v.tracer != "func" && (ev.open != 0 || ev.strays != 0) {
					t.Errorf("%d calls left open, %d exits without entry", ev.open, ev.strays)
				}
				b, err := readUsed(v.config.Session)
				if err != nil {
					t.Fatal(err)
				}
				if e := b[256+format.RangeEntry:]; le.Uint64(e) != 0x1234 || le.Uint64(e[format.RangeEntry:]) != 0 {
					t.Errorf("ranges % x", e[:2*format.RangeEntry])
				}
			})
		}
	})
}

// TestNoIDsLeft: a program whose functions cannot have ids of their own is not traced,
// and leaves the table of ranges as it is for those that come after it.
func TestNoIDsLeft(t *testing.T) {
	session := sharedTrace(t, format.IDMax-1)
	before, err := os.ReadFile(session)
	if err != nil {
		t.Fatal(err)
	}
	f := buildFixture(t, "basic.c", buildOptions{config: Config{Session: session}})
	for range 2 {
		out, err := f.command(t).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "fentry: an image is not traced: the trace has no ids left\n") {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	after, err := os.ReadFile(session)
	if err != nil {
		t.Fatal(err)
	}
	table := func(b []byte) []byte { return b[256 : 256+8*format.RangeEntry] }
	if !bytes.Equal(table(before), table(after)) {
		t.Errorf("ranges % x", table(after))
	}
}

// TestNoSession: a program that was to be traced for a recorder which is gone runs untraced, and makes no trace of its own.
func TestNoSession(t *testing.T) {
	forEach(t, func(t *testing.T, m *machine) {
		f := buildFixture(t, "basic.c", buildOptions{on: m, config: Config{Session: filepath.Join(t.TempDir(), "pool")}})
		cmd := f.command(t)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		madeNothing(t, cmd)
	})
}

// TestGuest: two images are traced by one runtime. The second is a shared object with
// thunks and fast paths of its own, loaded and closed three times; its functions and
// the program's call each other, and jump to each other.
func TestGuest(t *testing.T) {
	for _, v := range []struct {
		name, tracer string
		config       Config
	}{
		{"graph", "graph", Config{}},
		{"func", "func", Config{Mode: ModeFunction}},
		{"depth", "opt", Config{Depth: 1 << 30}},
		{"profile", "profile", Config{Mode: ModeProfile}},
		{"count", "count", Config{Mode: ModeCount}},
	} {
		for _, gs := range []bool{false, true} {
			name := v.name
			if gs {
				name += "-gs"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := buildFixture(t, "guest-home.c", buildOptions{tracer: v.tracer, config: v.config, flags: gsFlags(gs)})
				g := buildFixture(t, "guest.c", buildOptions{tracer: v.tracer, config: v.config, guest: true})
				f.guests = map[uint64][]string{guestID: g.sites}
				out, ev := f.run(t, g.path)
				expectCounts(t, out, ev)
				if v.tracer != "func" && (ev.open != 0 || ev.strays != 0) || ev.lost != 0 {
					t.Errorf("%d calls left open, %d exits without entry, %d lost", ev.open, ev.strays, ev.lost)
				}
				if len(ev.maps) != 2 || ev.maps[0].first+ev.maps[0].count > ev.maps[1].first && ev.maps[1].first+ev.maps[1].count > ev.maps[0].first {
					t.Fatalf("images %+v", ev.maps)
				}
			})
		}
	}
}

// A guest whose thunks do something else than the home's is not traced, nor one of a process that is not traced, or that
// uses the address where images meet.
func TestGuestThatDoesNotFit(t *testing.T) {
	g := buildFixture(t, "guest.c", buildOptions{guest: true})
	const options, address = "its tracer or options are others than those of the process",
		"the process uses the address where images meet"
	for _, v := range []struct {
		name   string
		config Config
		tracer string
		flags  []string
		env    []string
		why    string
	}{
		{"depth", Config{Depth: 5}, "opt", nil, nil, options},
		{"count", Config{Mode: ModeCount}, "count", nil, nil, options},
		{"order", Config{Flags: FlagNoClock}, "order", nil, nil, options},
		{"off", Config{}, "graph", nil, []string{"FENTRY_OFF=1"}, ""},
		{"address", Config{}, "graph", []string{"-Wl,-Ttext-segment=0x1f0000"}, nil, address},
	} {
		t.Run(v.name, func(t *testing.T) {
			f := buildFixture(t, "guest-home.c", buildOptions{tracer: v.tracer, config: v.config, flags: v.flags})
			cmd := f.command(t, g.path)
			cmd.Env = append(cmd.Env, v.env...)
			out, err := cmd.CombinedOutput()
			want := "failed: the guest has not joined\n"
			if v.why != "" {
				want = "fentry: an image is not traced, because " + v.why + ": " + g.path + "\n" + want
			}
			if err == nil || string(out) != want {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestManyGuests: a block has room for the tables of 96 guests; those that come later run untraced, and the first says so.
func TestManyGuests(t *testing.T) {
	const room = 96
	config := Config{Mode: ModeCount}
	f := buildFixture(t, "guests.c", buildOptions{tracer: "count", config: config})
	g := buildFixture(t, "guest.c", buildOptions{tracer: "count", config: config, guest: true})
	object, err := os.ReadFile(g.path)
	if err != nil {
		t.Fatal(err)
	}
	dir, paths := t.TempDir(), []string(nil)
	for i := range room + 2 {
		path := filepath.Join(dir, fmt.Sprintf("guest%d.so", i))
		if err := os.WriteFile(path, object, 0o700); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	out, err := f.command(t, paths...).CombinedOutput()
	refused := "fentry: images that are loaded from now on are not traced, because the process has too many whose calls are counted; the first is "
	if err != nil || string(out) != refused+g.path+"\n"+fmt.Sprintln(room) {
		t.Errorf("%v\n%s", err, out)
	}
}

func gsFlags(gs bool) []string {
	if gs {
		return []string{"-DGUEST_GS"}
	}
	return nil
}
