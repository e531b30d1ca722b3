// Package testbrowser drives a browser in tests of what browsers show: it does what a person does, and sees what a
// person sees.
package testbrowser

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
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// A Browser is a headless Chromium, driven by the DevTools protocol over a pipe: JSON messages that end with a zero
// byte, in on descriptor 3 and out on 4. It needs no port, and no library.
type Browser struct {
	t       testing.TB
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

// The size of the page in pixels.
const (
	Width  = 1400
	Height = 900
)

// patience is that with a loaded machine.
const patience = testtool.Patience

// New starts a browser with one empty page. A browser that ends by itself before it has that page, as Chromium does now
// and then on a loaded machine (one of its own checks fails, and no page of ours was asked for), is replaced, and the
// test's log says so.
func New(t testing.TB) *Browser {
	t.Helper()
	path := testtool.Path(t, "chromium")
	const tries = 3
	for try := 1; ; try++ {
		b, stop, said := start(t, path)
		err := b.emptyPage()
		if err == nil {
			t.Cleanup(func() {
				stop()
				if t.Failed() {
					t.Logf("chromium: %s", said())
				}
			})
			return b
		}
		stop()
		if try == tries {
			t.Fatalf("%v\nchromium: %s", err, said())
		}
		t.Logf("start %d of the browser: %v\nchromium: %s", try, err, said())
	}
}

// start starts a browser. stop ends it and removes its files; said returns, after that, what it wrote to its standard
// error.
func start(t testing.TB, path string) (b *Browser, stop func(), said func() string) {
	t.Helper()
	toR, toW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromR, fromW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "fentry-browser-") // not the test's: Chromium's children can still write to it
	if err != nil {
		t.Fatal(err)
	}
	// Without a sandbox: as root, and in containers, there is none, and the only page it sees is ours. WebGL, which pages
	// of others need, is done by the processor: there is no other, and Chromium has to be told that this is wanted.
	cmd := exec.Command(path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
		"--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--mute-audio", "--user-data-dir="+filepath.Join(dir, "profile"),
		"about:blank")
	cmd.ExtraFiles = []*os.File{toR, fromW}
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = 10 * time.Second // for those children that keep it open
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	toR.Close()
	fromW.Close()
	b = &Browser{t: t, in: toW, answers: map[int]chan message{}, closed: make(chan struct{})}
	go b.read(fromR)
	stop = func() {
		b.send("Browser.close", nil)
		select {
		case <-b.closed:
		case <-time.After(10 * time.Second):
			cmd.Process.Kill()
		}
		toW.Close()
		cmd.Wait()
		fromR.Close()
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		for range 100 {
			if os.RemoveAll(dir) == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return b, stop, stderr.String
}

// emptyPage opens the page that is driven.
func (b *Browser) emptyPage() error {
	var target struct {
		ID string `json:"targetId"`
	}
	if err := b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target); err != nil {
		return err
	}
	var attached struct {
		Session string `json:"sessionId"`
	}
	if err := b.call("Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &attached); err != nil {
		return err
	}
	b.session = attached.Session
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		if err := b.call(domain+".enable", nil, nil); err != nil {
			return err
		}
	}
	return b.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": Width, "height": Height, "deviceScaleFactor": 1, "mobile": false,
	}, nil)
}

func (b *Browser) read(r *os.File) {
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

func (b *Browser) send(method string, params any) chan message {
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

// Call sends a command and waits for its result.
func (b *Browser) Call(method string, params, result any) {
	b.t.Helper()
	if err := b.call(method, params, result); err != nil {
		b.t.Fatal(err)
	}
}

func (b *Browser) call(method string, params, result any) error {
	select {
	case m := <-b.send(method, params):
		if m.Error != nil {
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				return fmt.Errorf("%s: %w: %s", method, err, m.Result)
			}
		}
		return nil
	case <-b.closed:
		return fmt.Errorf("%s: the browser has ended", method)
	case <-time.After(patience):
		return fmt.Errorf("%s: no answer", method)
	}
}

// Eval returns the value of an expression in the page, as JSON has it.
func (b *Browser) Eval(expression string, result any) {
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
	b.Call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.Exception != nil {
		b.t.Fatalf("%s: %s %s", expression, r.Exception.Text, r.Exception.Exception.Description)
	}
	if result != nil && len(r.Result.Value) > 0 {
		if err := json.Unmarshal(r.Result.Value, result); err != nil {
			b.t.Fatalf("%s: %v", expression, err)
		}
	}
}

// Wait waits until an expression is true.
func (b *Browser) Wait(expression string) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var is bool
		b.Eval("Boolean("+expression+")", &is)
		if is {
			return
		}
		if time.Now().After(end) {
			var status string
			b.Eval("document.body.innerText", &status)
			b.t.Fatalf("%s does not become true; the page says:\n%s", expression, status)
		}
	}
}

// Open shows an address.
func (b *Browser) Open(url string) {
	b.t.Helper()
	b.Call("Page.navigate", map[string]any{"url": url}, nil)
}

// Key presses a key: a character, or a name such as Enter or ArrowDown.
func (b *Browser) Key(key string) {
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
	b.Call("Input.dispatchKeyEvent", down, nil)
	b.Call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key}, nil)
}

// Type types a text into what has the focus.
func (b *Browser) Type(text string) {
	b.t.Helper()
	b.Call("Input.insertText", map[string]any{"text": text}, nil)
}

// Mouse moves the mouse to the first place, and with more of them drags to the others.
func (b *Browser) Mouse(kind string, x, y float64, more ...float64) {
	b.t.Helper()
	one := func(what string, x, y float64, buttons int) {
		b.Call("Input.dispatchMouseEvent", map[string]any{
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

// Click clicks the middle of an element.
func (b *Browser) Click(selector string) {
	b.t.Helper()
	var at struct{ X, Y float64 }
	b.Eval(fmt.Sprintf("(() => { const r = document.querySelector(%q).getBoundingClientRect(); "+
		"return {x: r.x + r.width / 2, y: r.y + r.height / 2} })()", selector), &at)
	b.Mouse("click", at.X, at.Y)
}

// Text returns the visible text of an element.
func (b *Browser) Text(selector string) (s string) {
	b.t.Helper()
	b.Eval(fmt.Sprintf("document.querySelector(%q).innerText", selector), &s)
	return s
}

// Screenshot keeps a picture of the page where FENTRY_SCREENSHOTS says, and returns it.
func (b *Browser) Screenshot(name string) []byte {
	b.t.Helper()
	var r struct {
		Data string `json:"data"`
	}
	b.Call("Page.captureScreenshot", map[string]any{"format": "png"}, &r)
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

// Complaints are what the page, or the browser on its behalf, has complained of: errors of scripts, violations of its
// policy, answers that are errors.
func (b *Browser) Complaints() (list []string) {
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

// Asked are the addresses that the page has asked for.
func (b *Browser) Asked() (list []string) {
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
