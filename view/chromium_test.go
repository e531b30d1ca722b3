package view

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// A browser is a headless Chromium, driven by the DevTools protocol over a pipe: JSON messages that end with a zero byte,
// in on descriptor 3 and out on 4. It needs no port, and no library.
type browser struct {
	t       *testing.T
	in      *os.File
	session string

	mu      sync.Mutex
	last    int
	answers map[int]chan message
	events  []message
	closed  chan struct{}
}

type message struct {
	ID      int             `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

const (
	pageWidth  = 1400
	pageHeight = 900
	patience   = 60 * time.Second // of a loaded machine
)

// newBrowser starts a browser with one empty page.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	path := testtool.Path(t, "chromium")
	toR, toW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromR, fromW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// Without a sandbox: as root, and in containers, there is none, and the only page it sees is ours.
	cmd := exec.Command(path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--mute-audio", "--user-data-dir="+filepath.Join(dir, "profile"), "about:blank")
	cmd.ExtraFiles = []*os.File{toR, fromW}
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	toR.Close()
	fromW.Close()
	b := &browser{t: t, in: toW, answers: map[int]chan message{}, closed: make(chan struct{})}
	go b.read(fromR)
	t.Cleanup(func() {
		b.send("Browser.close", nil)
		select {
		case <-b.closed:
		case <-time.After(10 * time.Second):
			cmd.Process.Kill()
		}
		toW.Close()
		cmd.Wait()
		fromR.Close()
		if t.Failed() {
			t.Logf("chromium: %s", stderr.Bytes())
		}
	})
	var target struct {
		ID string `json:"targetId"`
	}
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		Session string `json:"sessionId"`
	}
	b.call("Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &attached)
	b.session = attached.Session
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": pageWidth, "height": pageHeight, "deviceScaleFactor": 1, "mobile": false,
	}, nil)
	return b
}

func (b *browser) read(r *os.File) {
	defer close(b.closed)
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if m.ID == 0 {
			b.events = append(b.events, m)
		} else if c := b.answers[m.ID]; c != nil {
			c <- m
		}
		b.mu.Unlock()
	}
}

func (b *browser) send(method string, params any) chan message {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	answer := make(chan message, 1)
	b.answers[b.last] = answer
	m := map[string]any{"id": b.last, "method": method}
	if params != nil {
		m["params"] = params
	}
	if b.session != "" && !strings.HasPrefix(method, "Browser.") && !strings.HasPrefix(method, "Target.") {
		m["sessionId"] = b.session
	}
	text, err := json.Marshal(m)
	if err != nil {
		b.t.Error(err)
	}
	b.in.Write(append(text, 0))
	return answer
}

// call sends a command and waits for its result.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	select {
	case m := <-b.send(method, params):
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.t.Fatalf("%s: %v: %s", method, err, m.Result)
			}
		}
	case <-b.closed:
		b.t.Fatalf("%s: the browser has ended", method)
	case <-time.After(patience):
		b.t.Fatalf("%s: no answer", method)
	}
}

// eval returns the value of an expression in the page, as JSON has it.
func (b *browser) eval(expression string, result any) {
	b.t.Helper()
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.Exception != nil {
		b.t.Fatalf("%s: %s %s", expression, r.Exception.Text, r.Exception.Exception.Description)
	}
	if result != nil && len(r.Result.Value) > 0 {
		if err := json.Unmarshal(r.Result.Value, result); err != nil {
			b.t.Fatalf("%s: %v", expression, err)
		}
	}
}

// wait waits until an expression is true.
func (b *browser) wait(expression string) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var is bool
		b.eval("Boolean("+expression+")", &is)
		if is {
			return
		}
		if time.Now().After(end) {
			var status string
			b.eval("document.body.innerText", &status)
			b.t.Fatalf("%s does not become true; the page says:\n%s", expression, status)
		}
	}
}

// open shows an address and waits until the page is there with all that is visible.
func (b *browser) open(url string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.wait("document.querySelector('html[data-ready=yes]')")
	b.settle()
}

// settle waits until nothing is on its way.
func (b *browser) settle() {
	b.t.Helper()
	b.eval("new Promise(r => setTimeout(r, 200))", nil)
	b.wait("document.getElementById('tracks').dataset.waiting === '0' && " +
		"document.getElementById('body').getAttribute('aria-busy') !== 'true'")
	b.eval("new Promise(r => setTimeout(() => requestAnimationFrame(() => setTimeout(r, 0)), 150))", nil)
}

// key presses a key: a character, or a name such as Enter or ArrowDown.
func (b *browser) key(key string) {
	b.t.Helper()
	down := map[string]any{"type": "keyDown", "key": key}
	switch {
	case len(key) == 1:
		down["text"] = key
	case key == "Enter":
		down["text"], down["windowsVirtualKeyCode"] = "\r", 13
	case key == "Escape":
		down["windowsVirtualKeyCode"] = 27
	}
	b.call("Input.dispatchKeyEvent", down, nil)
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key}, nil)
}

func (b *browser) typeText(text string) {
	b.t.Helper()
	b.call("Input.insertText", map[string]any{"text": text}, nil)
}

// mouse moves the mouse to the first place, and with more of them drags to the others.
func (b *browser) mouse(kind string, x, y float64, more ...float64) {
	b.t.Helper()
	one := func(what string, x, y float64, buttons int) {
		b.call("Input.dispatchMouseEvent", map[string]any{
			"type": what, "x": x, "y": y, "button": "left", "buttons": buttons, "clickCount": 1,
		}, nil)
	}
	one("mouseMoved", x, y, 0)
	if kind == "move" {
		return
	}
	one("mousePressed", x, y, 1)
	for i := 0; i+1 < len(more); i += 2 {
		x, y = more[i], more[i+1]
		one("mouseMoved", x, y, 1)
	}
	one("mouseReleased", x, y, 0)
}

// click clicks the middle of an element.
func (b *browser) click(selector string) {
	b.t.Helper()
	var at struct{ X, Y float64 }
	b.eval(fmt.Sprintf("(() => { const r = document.querySelector(%q).getBoundingClientRect(); "+
		"return {x: r.x + r.width / 2, y: r.y + r.height / 2} })()", selector), &at)
	b.mouse("click", at.X, at.Y)
}

// text returns the visible text of an element.
func (b *browser) text(selector string) (s string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("document.querySelector(%q).innerText", selector), &s)
	return s
}

// screenshot keeps a picture of the page where FENTRY_SCREENSHOTS says, and returns it.
func (b *browser) screenshot(name string) []byte {
	b.t.Helper()
	var r struct {
		Data string `json:"data"`
	}
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &r)
	png, err := base64.StdEncoding.DecodeString(r.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	if dir := os.Getenv("FENTRY_SCREENSHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o666); err != nil {
			b.t.Fatal(err)
		}
	}
	return png
}

// complaints are what the page, or the browser on its behalf, has complained of: errors of scripts, violations of its
// policy, answers that are errors.
func (b *browser) complaints() (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.events {
		switch m.Method {
		case "Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed":
			if !bytes.Contains(m.Params, []byte("net::ERR_ABORTED")) {
				list = append(list, m.Method+" "+string(m.Params))
			}
		}
	}
	return list
}

// asked are the addresses that the page has asked for.
func (b *browser) asked() (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.events {
		if m.Method != "Network.requestWillBeSent" {
			continue
		}
		var p struct {
			Request struct {
				URL string `json:"url"`
			} `json:"request"`
		}
		if json.Unmarshal(m.Params, &p) == nil {
			list = append(list, p.Request.URL)
		}
	}
	return list
}
