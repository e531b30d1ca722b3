package view

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/sample"
	"github.com/fentry-dev/fentry/internal/testbrowser"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/trace"
)

// A pageBrowser looks at the page.
type pageBrowser struct {
	*testbrowser.Browser
	t *testing.T
}

func newBrowser(t *testing.T) pageBrowser { return pageBrowser{testbrowser.New(t), t} }

// open shows an address and waits until the page is there with all that is visible.
func (b pageBrowser) open(url string) {
	b.t.Helper()
	b.Open(url)
	b.Wait("document.querySelector('html[data-ready=yes]')")
	b.settle()
}

// settle waits until nothing is on its way.
func (b pageBrowser) settle() {
	b.t.Helper()
	b.Eval("new Promise(r => setTimeout(r, 200))", nil)
	b.Wait("document.getElementById('tracks').dataset.waiting === '0' && " +
		"document.getElementById('body').getAttribute('aria-busy') !== 'true'")
	b.Eval("new Promise(r => setTimeout(() => requestAnimationFrame(() => setTimeout(r, 0)), 150))", nil)
}

// servePage serves a trace, and returns the page's address.
func servePage(t *testing.T, tr *trace.Trace) string {
	t.Helper()
	v := newViewer(t, tr)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(v, l.Addr())
	h := &http.Server{Handler: s}
	go h.Serve(l)
	t.Cleanup(func() { h.Close() })
	return s.URL()
}

// requests is a trace of two threads that handle requests, one of which takes much longer than all others, and a third
// that has one call.
func requests(t *testing.T) *trace.Trace {
	names := []string{"serve", "handle", "parse", "answer", "log_line", "idle"}
	return sample.Build(t, names, func(w *trace.Writer) {
		rng := rand.New(rand.NewPCG(2, 9))
		for i := range 2 {
			k := w.Task(trace.TaskID{PID: 7, TID: 7 + i, Image: sample.Image, Comm: fmt.Sprint("worker-", i)})
			now := uint64(1000)
			k.Enter(now, 1)
			for n := range 400 {
				now += 100 + rng.Uint64N(400)
				k.Enter(now, 2)
				for _, fn := range []uint32{3, 4} {
					now += 10 + rng.Uint64N(50)
					k.Enter(now, fn)
					if fn == 4 {
						k.Enter(now+5, 5)
						k.Exit(now+15, 5)
					}
					now += 20 + rng.Uint64N(3000)
					if n == 300 && i == 1 && fn == 4 {
						now += 400_000
					}
					k.Exit(now, fn)
				}
				now += 10
				k.Exit(now, 2)
				if n == 100 {
					k.Mark(now, 1, "a hundred")
				}
			}
			k.Exit(now+100, 1)
			k.Flush()
		}
		k := w.Task(trace.TaskID{PID: 8, TID: 8, Image: sample.Image, Comm: "other"})
		k.Enter(1000, 6)
		k.Exit(900_000, 6)
		k.Flush()
	})
}

// fragment is what the page's address says, by name.
func (b pageBrowser) fragment() url.Values {
	b.t.Helper()
	b.Eval("new Promise(r => setTimeout(r, 200))", nil) // it is written when nothing has changed for a while
	var hash string
	b.Eval("location.hash.slice(1)", &hash)
	values, err := url.ParseQuery(hash)
	if err != nil {
		b.t.Fatal(err)
	}
	return values
}

// visible is the time that the page shows.
func (b pageBrowser) visible() (from, to int64) {
	b.t.Helper()
	if _, err := fmt.Sscanf(b.fragment().Get("view"), "%d,%d", &from, &to); err != nil {
		b.t.Fatal(err)
	}
	return from, to
}

// still waits until a movement has ended.
func (b pageBrowser) still() {
	b.t.Helper()
	b.Eval("new Promise(r => setTimeout(r, 350))", nil)
	b.settle()
}

// TestPage does what people do: look, zoom, search, select, follow a link.
func TestPage(t *testing.T) {
	tr := requests(t)
	address := servePage(t, tr)
	b := newBrowser(t)
	b.open(address)
	if s := b.Text("#body"); !strings.Contains(s, "handle") || !strings.Contains(s, "800") {
		t.Errorf("the table of functions shows\n%s", s)
	}
	first, last := b.visible()
	b.Screenshot("open")

	// Zoom and pan.
	b.Mouse("move", 700, 200)
	b.Key("w")
	b.still()
	from, to := b.visible()
	if to-from >= last-first || from <= first {
		t.Errorf("w: from %d..%d to %d..%d", first, last, from, to)
	}
	b.Key("d")
	b.still()
	if f, _ := b.visible(); f <= from {
		t.Errorf("d: %d, not behind %d", f, from)
	}
	b.Key("a")
	b.Key("s")
	b.still()

	// Search.
	b.Key("/")
	b.Type("answer")
	b.Key("Enter")
	b.still()
	if got := b.fragment(); !strings.HasSuffix(got.Get("call"), ",answer") || got.Get("search") != "answer" {
		t.Errorf("searching has found %v", got)
	}
	one := b.fragment().Get("call")
	b.Key("Enter")
	b.still()
	if two := b.fragment().Get("call"); two == one {
		t.Error("the next match is the same")
	}
	b.Screenshot("search")
	b.Eval("const query = document.getElementById('query'); query.value = ''; query.dispatchEvent(new Event('input'))",
		nil)
	b.Key("Escape") // back to the timeline
	b.Key("Escape") // nothing is selected

	// The slowest calls, and where they are.
	b.Key("3")
	b.settle()
	b.Click("#body tbody tr:nth-child(4) .link") // behind serve, serve and idle
	b.still()
	call := b.fragment()
	if s := call.Get("call"); !strings.HasSuffix(s, ",handle") || !strings.HasPrefix(s, "1,1,") {
		t.Errorf("the slowest call is %s", s)
	}
	b.Screenshot("slowest")
	b.Key("5")
	b.settle()
	if s := b.Text("#body"); !strings.Contains(s, "handle") || !strings.Contains(s, "serve") ||
		!strings.Contains(s, "worker-1 8") {
		t.Errorf("the call is\n%s", s)
	}

	// A function with those around it.
	b.Key("4")
	b.settle()
	if s := b.Text("#body"); !strings.Contains(s, "Called by") || !strings.Contains(s, "serve") ||
		!strings.Contains(s, "parse") {
		t.Errorf("around handle there are\n%s", s)
	}
	b.Key("Escape")

	// A part of the time of one task, as a flame graph.
	b.Key("0")
	b.still()
	b.Mouse("drag", 500, 110, 600, 115, 800, 112)
	b.settle()
	b.Key("2")
	b.settle()
	part := b.fragment()
	if part.Get("range") == "" || part.Get("task") != "0" || part.Get("tab") != "flames" {
		t.Errorf("a part is selected: %v", part)
	}
	b.Screenshot("flames")

	// The address restores all of it.
	var link string
	b.Eval("location.href", &link)
	b.Open("about:blank")
	b.open(link)
	again := b.fragment()
	for name := range part {
		if again.Get(name) != part.Get(name) {
			t.Errorf("%s is %q behind the link, was %q", name, again.Get(name), part.Get(name))
		}
	}
	if s := b.Text("#chips"); s == "" {
		t.Error("the link has lost the selected time")
	}

	b.Click("#theme")
	b.Key("1")
	b.settle()
	b.Screenshot("dark")
	if list := b.Complaints(); len(list) > 0 {
		t.Errorf("the page complains:\n%s", strings.Join(list, "\n"))
	}
	for _, u := range b.Asked() {
		if !strings.HasPrefix(u, address) && u != "about:blank" {
			t.Errorf("the page asks for %s", u)
		}
	}
}

// TestPageNotes: what no call is can be reached by keys and by clicking, shows all that is known of it, and a link leads
// to it; the stack that was walked at a call is shown with the call.
func TestPageNotes(t *testing.T) {
	b := newBrowser(t)
	address := servePage(t, noted(t))
	b.open(address)
	b.Key("m")
	b.settle()
	if s := b.Text("#status"); !strings.Contains(s, "begins") {
		t.Errorf("the first note is said to be %q", s)
	}
	b.Key("m")
	b.Key("5")
	b.settle()
	if s := b.Text("#body"); !strings.Contains(s, "SIGUSR1") || !strings.Contains(s, "0x401010") || !strings.Contains(s, "main") {
		t.Errorf("the signal is\n%s", s)
	}
	b.Key("m")
	b.settle()
	stack := func() {
		t.Helper()
		if s := b.Text("#body"); !strings.Contains(s, "as it was walked") || !strings.Contains(s, "0x2001") {
			t.Errorf("the stack is\n%s", s)
		}
	}
	stack()
	b.Screenshot("stack")
	var task, time, left, right int64
	if _, err := fmt.Sscanf(b.fragment().Get("note"), "%d,%d", &task, &time); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"f", "w", "w", "s"} {
		from, to := b.visible()
		b.Key(key)
		b.still()
		if left, right = b.visible(); (right-left < to-from) == (key == "s") || time < left || time > right {
			t.Errorf("%s shows %d to %d, was %d to %d; the stack is at %d", key, left, right, from, to, time)
		}
	}
	b.Key("0")
	b.still()
	var link string
	b.Eval("new Promise(r => setTimeout(() => r(location.href), 300))", &link)
	b.Open("about:blank")
	b.open(link)
	stack()
	b.Key("Escape")
	b.Key("/")
	b.Type("work")
	b.Key("Enter") // the second of them
	b.still()
	b.Key("Enter")
	b.still()
	stack()
	var at struct{ X, Y float64 } // of the signal
	b.Eval(`(async () => {
		const { visibleNotes } = await import(location.pathname + "timeline.js");
		const { state, show } = await import(location.pathname + "state.js");
		show(0, state.about.end);
		await new Promise((r) => setTimeout(() => requestAnimationFrame(() => setTimeout(r, 50)), 50));
		const n = visibleNotes().find((b) => b.note.kind === "signal"), r = document.getElementById("tracks").getBoundingClientRect();
		return { X: r.x + n.x + n.w / 2, Y: r.y + n.y + n.h / 2 };
	})()`, &at)
	b.Mouse("click", at.X, at.Y)
	b.settle()
	if s := b.Text("#body"); !strings.Contains(s, "SIGUSR1") {
		t.Errorf("behind the click there is\n%s", s)
	}
	b.Click("#theme")
	b.settle()
	b.Screenshot("note-dark")
	if list := b.Complaints(); len(list) > 0 {
		t.Errorf("the page complains:\n%s", strings.Join(list, "\n"))
	}
}

// TestPageDoesNotWait: while whole tiles are decoded, what the server has at once of others is asked for and shown.
func TestPageDoesNotWait(t *testing.T) {
	tr := sample.Random(t, rand.New(rand.NewPCG(3, 4)), 100_000)
	if _, err := tr.MakeIndex(trace.IndexOptions{Memory: true, Block: 16}); err != nil {
		t.Fatal(err)
	}
	v := newViewer(t, tr)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(v, l.Addr())
	var whole atomic.Int64
	h := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/api/tile") && r.URL.Query().Get("quick") != "1" {
			whole.Add(1)
			<-r.Context().Done() // for as long as the page is there
			return
		}
		s.ServeHTTP(w, r)
	})}
	go h.Serve(l)
	t.Cleanup(func() { h.Close() })
	b := newBrowser(t)
	b.Open(s.URL())
	b.Wait("document.querySelector('html[data-ready=yes]')")
	for end := time.Now().Add(testtool.Patience); time.Now().Before(end); {
		if whole.Load() > 1 {
			break
		}
		b.Eval("new Promise((r) => setTimeout(r, 100))", nil)
	}
	if whole.Load() < 2 {
		t.Fatal("no tile was partial")
	}
	b.Eval(`(async () => {
		for (const name of ["state", "timeline", "tiles"]) window[name] = await import(location.pathname + name + ".js");
	})()`, nil)
	for range 3 { // at each zoom, the tiles below what can be seen come
		b.Eval("timeline.zoom(0.4)", nil)
		b.Wait(`(() => {
			const s = state.state, level = tiles.levelFor(timeline.nsPerPixel(), s.about.levels);
			return tiles.peek(0, level, Math.floor((s.from + s.to) / 2 / tiles.width(level)));
		})()`)
	}
}

// TestHostileNames: names of functions, tasks, programs and marks, and addresses, are text, whatever they look like.
func TestHostileNames(t *testing.T) {
	const bad = `<img src=x onerror="window.hit=1"><script>window.hit=2</script>'"&lt;` + "`${window.hit=3}`"
	names := []string{bad, "javascript:window.hit=4", "\u202egnp.exe\x1b]0;x\a", "__proto__", "constructor", `"}],"k":[{"`}
	tr := sample.Build(t, names, func(w *trace.Writer) {
		w.WriteImage(trace.Image{ID: sample.Image, Path: bad, Exe: bad, Command: []string{bad}})
		k := w.Task(trace.TaskID{PID: 7, TID: 7, Image: sample.Image, Comm: "<b onclick=x>"})
		k.Mark(1000, 1, bad)
		for n := range uint64(300) {
			now := 1000 + 100*n
			for i := range uint64(6) {
				k.Enter(now+i, uint32(1+i))
			}
			for i := range uint64(6) {
				k.Exit(now+50+i, uint32(6-i))
			}
		}
		k.Flush()
	})
	address := servePage(t, tr)
	b := newBrowser(t)
	for _, fragment := range []string{
		"", "#tab=around&fn=0.1," + url.QueryEscape(bad), "#tab=call&call=0,0,0,55,0.1," + url.QueryEscape(bad),
		"#tab=" + url.QueryEscape(bad) + "&view=" + url.QueryEscape(bad) + "&task=__proto__&search=" + url.QueryEscape(bad),
		"#tab=flames&view=0,500,0&range=1,1e308", "#tab=slowest&view=NaN,Infinity",
		"#view=-1e300,1e300,-5&range=-1,5&call=9,9,9,9,9", "#tab=call&note=0,0,mark",
		"#tab=call&note=0,7," + url.QueryEscape(bad),
	} {
		b.Open("about:blank")
		b.open(address + fragment)
		for x := 200.0; x < testbrowser.Width; x += 97 { // what is shown beside the pointer
			b.Mouse("move", x, 62+x/12)
		}
		b.Key("2")
		b.settle()
		b.Key("n")
		b.still()
		var seen struct {
			Hit   any
			Alien int
		}
		b.Eval(`({Hit: window.hit ?? null, 
			Alien: document.querySelectorAll("img, b[onclick], iframe, object, a[href]").length +
				document.scripts.length - 1})`, &seen)
		if seen.Hit != nil || seen.Alien != 0 {
			t.Errorf("%s: a name has become more than text: %+v", fragment, seen)
		}
	}
	b.Screenshot("hostile")
	if list := b.Complaints(); len(list) > 0 {
		t.Errorf("the page complains:\n%s", strings.Join(list, "\n"))
	}
	if !strings.Contains(b.Text("#panel"), "onerror") {
		b.Key("1")
		b.settle()
		if s := b.Text("#body"); !strings.Contains(s, "<img src=x onerror=") {
			t.Errorf("names are not shown as they are:\n%s", s)
		}
	}
}

// TestAccessible: text has enough contrast in both themes, on the colours of functions too; everything can be reached
// by keys and has a name; and nothing moves for those who want no motion.
func TestAccessible(t *testing.T) {
	address := servePage(t, requests(t))
	b := newBrowser(t)
	for _, theme := range []string{"light", "dark"} {
		b.Call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
			{"name": "prefers-reduced-motion", "value": "reduce"}, {"name": "prefers-color-scheme", "value": theme},
		}}, nil)
		b.open(address)
		var low []string
		b.Eval(`(async () => {
			const colors = await import(location.pathname + "colors.js");
			const g = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
			const light = (color, on) => {
				g.fillStyle = on || "#000";
				g.fillRect(0, 0, 1, 1);
				g.fillStyle = color;
				g.fillRect(0, 0, 1, 1);
				const [r, gr, bl] = [...g.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
					.map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
				return 0.2126 * r + 0.7152 * gr + 0.0722 * bl;
			};
			const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
			const low = [];
			const check = (what, a, b) => { if (contrast(a, b) < 4.5) low.push(what + " " + contrast(a, b).toFixed(2)); };
			const c = colors.color;
			for (const ground of ["ground", "raised"]) {
				for (const text of ["text", "faint", "accent", "warn"]) check(text + " on " + ground, c(text), c(ground));
			}
			for (let i = 0; i < 500; i++) {
				check("function " + i, c("box-text"), colors.ofFunction({ id: "9." + i, name: "function" + i }));
			}
			check("system call", c("box-text"), colors.ofFunction({ id: "8.1", name: "sys_read", sys: true }));
			return low;
		})()`, &low)
		if len(low) > 0 {
			t.Errorf("%s: contrast is too low: %s", theme, strings.Join(low, ", "))
		}
		var nameless []string
		b.Eval(`[...document.querySelectorAll("button, input, select, canvas, [role], [tabindex]")]
			.filter((e) => !(e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.innerText?.trim() ||
				e.labels?.length || e.id === "status" || e.id === "search"))
			.map((e) => e.outerHTML.slice(0, 100))`, &nameless)
		if len(nameless) > 0 {
			t.Errorf("%s: without a name: %s", theme, strings.Join(nameless, "\n"))
		}
	}
	// What is shown changes with the key, not in frames behind it.
	var moved bool
	b.Eval(`(async () => {
		const { state } = await import(location.pathname + "state.js");
		const first = state.from;
		document.getElementById("tracks").dispatchEvent(new KeyboardEvent("keydown", { key: "d", bubbles: true }));
		return state.from > first;
	})()`, &moved)
	if !moved {
		t.Error("d has moved nothing yet")
	}
	// By keys alone: a call, the one inside of it, its page.
	b.Eval("document.getElementById('tracks').focus()", nil)
	b.Key("/")
	b.Type("handle")
	b.Key("Enter")
	b.still()
	b.Key("Escape")
	b.Key("ArrowDown")
	b.settle()
	if s := b.fragment().Get("call"); !strings.HasSuffix(s, ",parse") {
		t.Errorf("inside of handle there is %q", s)
	}
	if s := b.Text("#status"); !strings.Contains(s, "parse") {
		t.Errorf("what is selected is not said: %q", s)
	}
	b.Key("f")
	b.still()
	if from, to := b.visible(); to-from > 10_000 {
		t.Errorf("f shows %d ns", to-from)
	}
}
