package view

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/sample"
	"github.com/fentry-dev/fentry/trace"
)

var testAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7777}

// ask sends a request for a path below the page's to a server.
func ask(s *Server, path string, change func(r *http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, s.URL()+path, nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// TestServer asks for everything that the page asks for.
func TestServer(t *testing.T) {
	s := NewServer(newViewer(t, sample.Small(t)), testAddr)
	for _, path := range []string{
		"api/about", "api/tile?task=0&level=0&tile=0", "api/functions?from=0&to=9000", "api/flames?from=0&to=9000&task=0",
		"api/flames?from=1000&to=3000&fn=0.2", "api/around?from=0&to=9000&fn=0.2", "api/slowest?from=0&to=9000&n=5&process=0",
		"api/find?from=0&to=9000&text=fib&back=0", "api/find?from=0&to=9000&fn=0.2&back=1",
		"api/call?task=0&row=1&fn=0.2&from=1020&to=2050", "api/note?task=0&from=3070&to=3070&kind=mark",
	} {
		w := ask(s, path, nil)
		if w.Code != 200 || !json.Valid(w.Body.Bytes()) || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		if again := ask(s, path, nil); again.Body.String() != w.Body.String() {
			t.Errorf("%s: another answer the second time", path)
		}
	}
	for path, kind := range map[string]string{"": "text/html", "main.js": "text/javascript", "style.css": "text/css",
		"icon.svg": "image/svg+xml"} {
		if w := ask(s, path, nil); w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) {
			t.Errorf("%q: %d, %s", path, w.Code, w.Header().Get("Content-Type"))
		}
	}
}

// TestBadRequests: what makes no sense is refused, with the name of the parameter.
func TestBadRequests(t *testing.T) {
	s := NewServer(newViewer(t, sample.Small(t)), testAddr)
	for path, name := range map[string]string{
		"api/tile":                                           "task",
		"api/tile?task=3&level=0&tile=0":                     "task",
		"api/tile?task=-1&level=0&tile=0":                    "task",
		"api/tile?task=0&level=45&tile=0":                    "level",
		"api/tile?task=0&level=0&tile=99999999":              "tile",
		"api/tile?task=0&level=0&tile=9999999999999999999":   "tile",
		"api/tile?task=0&level=44&tile=1":                    "tile",
		"api/tile?task=0&task=1&level=0&tile=0":              "task",
		"api/tile?task=0&level=0&tile=0&more=1":              "more",
		"api/functions?from=x&to=9":                          "from",
		"api/functions?from=9&to=1":                          "to",
		"api/functions?from=0&to=9&task=one":                 "task",
		"api/functions?from=0&to=9&process=99":               "process",
		"api/flames?from=0&to=9&fn=1":                        "fn",
		"api/flames?from=0&to=9&fn=0.0":                      "fn",
		"api/flames?from=0&to=9&fn=0.99999999999":            "fn",
		"api/around?from=0&to=9":                             "fn",
		"api/slowest?from=0&to=9&n=0":                        "n",
		"api/slowest?from=0&to=9&n=1001":                     "n",
		"api/find?from=0&to=9&back=0":                        "fn",
		"api/find?from=0&to=9&text=a&back=2":                 "back",
		"api/call?row=0&fn=0.1&from=0&to=1":                  "task",
		"api/call?task=0&row=-1&fn=0.1&from=0&to=1":          "row",
		"api/call?task=0&row=1&from=0&to=1":                  "fn",
		"api/note?task=0&from=0&to=1":                        "kind",
		"api/note?from=0&to=1&kind=mark":                     "task",
		"api/about?x=%zz":                                    "malformed",
		"api/about?x=" + strings.Repeat("y", maxQuery):       "too long",
		"api/functions?from=0&to=9;DROP":                     "malformed",
		"api/functions?from=0&to=9&%3Cscript%3E=1":           "unknown",
		"api/functions?from=0&to=9223372036854775807&task=0": "to",
	} {
		w := ask(s, path, nil)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), name) || len(w.Body.String()) > 200 {
			t.Errorf("%.80s: %d %.300s, want 400 and %s", path, w.Code, w.Body, name)
		}
		if kind := w.Header().Get("Content-Type"); kind != "text/plain; charset=utf-8" {
			t.Errorf("%.80s: an error is %s", path, kind)
		}
	}
	// A function that the trace does not have was not called.
	if w := ask(s, "api/flames?from=0&to=9000&fn=4000000000.4000000000", nil); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestQueues: tiles do not wait for what counts, and who has gone away does not wait at all.
func TestQueues(t *testing.T) {
	v := newViewer(t, sample.Small(t))
	s := NewServer(v, testAddr)
	for range sideBySide {
		v.answers.count <- struct{}{} // somebody counts
		v.answers.whole <- struct{}{} // and decodes
	}
	for _, path := range []string{"api/about", "api/tile?task=0&level=3&tile=0&quick=1",
		"api/call?task=0&row=1&fn=0.2&from=1020&to=2050"} {
		if w := ask(s, path, nil); w.Code != 200 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, s.URL()+"api/flames?from=0&to=9000", nil).WithContext(ctx))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("who has gone away gets %d", w.Code)
	}
	<-v.answers.count
	if w := ask(s, "api/flames?from=0&to=9000", nil); w.Code != 200 {
		t.Errorf("behind that, %d", w.Code)
	}
}

// TestStrangers: nobody but the page gets anything.
func TestStrangers(t *testing.T) {
	s := NewServer(newViewer(t, sample.Small(t)), testAddr)
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	for what, c := range map[string]struct {
		change func(*http.Request)
		code   int
	}{
		"the page":               {header("Sec-Fetch-Site", "same-origin"), 200},
		"typed":                  {header("Sec-Fetch-Site", "none"), 200},
		"its own origin":         {header("Origin", "http://127.0.0.1:7777"), 200},
		"another of its names":   {host("localhost:7777"), 200},
		"IPv6":                   {host("[::1]:7777"), 200},
		"rebound name":           {host("evil.example:7777"), 403},
		"no port":                {host("127.0.0.1"), 403},
		"another port":           {host("127.0.0.1:80"), 403},
		"no host":                {host(""), 403},
		"a longer name":          {host("127.0.0.1:7777.evil.example"), 403},
		"another origin":         {header("Origin", "http://evil.example"), 403},
		"the null origin":        {header("Origin", "null"), 403},
		"another port's origin":  {header("Origin", "http://127.0.0.1:8888"), 403},
		"another site":           {header("Sec-Fetch-Site", "cross-site"), 403},
		"another port's page":    {header("Sec-Fetch-Site", "same-site"), 403},
		"writing":                {func(r *http.Request) { r.Method = http.MethodPost }, 405},
		"asking before":          {func(r *http.Request) { r.Method = http.MethodOptions }, 405},
		"no token":               {func(r *http.Request) { r.URL.Path = "/api/about" }, 404},
		"another token":          {func(r *http.Request) { r.URL.Path = "/AAAAAAAAAAAAAAAAAAAAAAAAAA/api/about" }, 404},
		"part of the token":      {func(r *http.Request) { r.URL.Path = "/" + s.token[:10] + "/api/about" }, 404},
		"nothing":                {func(r *http.Request) { r.URL.Path = "/" }, 404},
		"a way out":              {func(r *http.Request) { r.URL.Path = "/" + s.token + "/../../etc/passwd" }, 307},
		"what is not asked":      {func(r *http.Request) { r.URL.Path += "/more" }, 404},
		"a file that is not one": {func(r *http.Request) { r.URL.Path = "/" + s.token + "/server.go" }, 404},
	} {
		w := ask(s, "api/about", c.change)
		if w.Code != c.code {
			t.Errorf("%s: %d, want %d", what, w.Code, c.code)
		}
		if w.Code != 200 && strings.Contains(w.Body.String(), "prog") {
			t.Errorf("%s: learns %s", what, w.Body)
		}
		h := w.Header()
		if h.Get("Access-Control-Allow-Origin") != "" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" ||
			h.Get("Referrer-Policy") != "no-referrer" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", what, h)
		}
		csp := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'; script-src 'self';") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %s", what, csp)
		}
	}
	// A link from another site leads to the page, but not to what it asks.
	link := func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Sec-Fetch-Mode", "navigate")
	}
	if w := ask(s, "", link); w.Code != 200 {
		t.Errorf("a link: %d", w.Code)
	}
	if w := ask(s, "api/about", link); w.Code != 403 {
		t.Errorf("a link to data: %d", w.Code)
	}
	if other := NewServer(s.v, testAddr); other.token == s.token || len(s.token) < 26 {
		t.Error("tokens can be guessed")
	}
}

// TestFiles: the page is below 400 KB, has no script but its own files, and names nothing that is elsewhere.
func TestFiles(t *testing.T) {
	size := 0
	entries, err := webFiles.ReadDir("web")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := webFiles.ReadFile("web/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		size += len(b)
		text := strings.ReplaceAll(string(b), `xmlns="http://www.w3.org/2000/svg"`, "")
		for _, never := range []string{"http:", "https:", "//cdn", "innerHTML", "outerHTML", "insertAdjacentHTML",
			"document.write",
			"eval(", "new Function", " onclick=", " style=", "<script>", "localStorage", "@import", "url("} {
			if strings.Contains(text, never) {
				t.Errorf("%s has %s", e.Name(), never)
			}
		}
		for i, line := range strings.Split(text, "\n") {
			if len([]rune(line)) > 300 {
				t.Errorf("%s:%d: a line of %d characters", e.Name(), i+1, len(line))
			}
		}
	}
	if size > 400<<10 || size < 10<<10 {
		t.Errorf("the page has %d bytes", size)
	}
}

// FuzzQuery asks with any parameters: an answer is JSON or an error that says so, never a panic.
func FuzzQuery(f *testing.F) {
	for _, q := range []string{
		"tile?task=0&level=3&tile=2", "functions?from=0&to=900&task=1", "flames?from=5&to=900&fn=0.2",
		"around?from=0&to=9&fn=0.1",
		"slowest?n=3&from=0&to=99999", "find?from=10&to=5000&text=i&back=1", "call?task=0&row=1&fn=0.2&from=1020&to=1020",
		"about",
		"call?task=0&row=0&fn=4294967295.3&from=0&to=0", "note?task=0&from=0&to=0&kind=stack", "tile?task=2&level=44&tile=0",
	} {
		f.Add(q)
	}
	tr := sample.Random(f, rand.New(rand.NewPCG(1, 2)), 500)
	if _, err := tr.MakeIndex(trace.IndexOptions{Memory: true, Block: 32}); err != nil {
		f.Fatal(err)
	}
	s := NewServer(newViewer(f, tr), testAddr)
	f.Fuzz(func(t *testing.T, query string) {
		path, values, _ := strings.Cut(query, "?")
		w := ask(s, "api/about", func(r *http.Request) {
			r.URL.Path = "/" + s.token + "/api/" + path
			r.URL.RawQuery = values
		})
		switch w.Code {
		case 200:
			if !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s: %s", query, w.Body)
			}
		case 400, 404, 307, 301:
		default:
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	})
}
