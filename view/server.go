package view

import (
	"crypto/rand"
	"embed"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// The trace is this user's alone, and a browser is full of others' pages. What is served goes to whoever knows the
// token: the page's own address. The other checks are for when somebody does, or need not:
//
//   - a name that resolves to 127.0.0.1 makes a stranger's page the same origin as this server (DNS rebinding). Such
//     requests name their own host, so only this server's address is taken for one.
//   - requests from pages of other origins say so (Origin, Sec-Fetch-Site), and are refused; nothing allows them to
//     read answers (no Access-Control-Allow-Origin, Cross-Origin-Resource-Policy).
//   - the page may load what is below its own address only, runs no script but its own files and makes no HTML of
//     text, so a name from a trace is never more than text. It may not be shown in another page's frame.
//   - the address, with the token, goes nowhere as a referrer.

//go:embed web
var webFiles embed.FS

// A Server serves a page about a trace below a random token.
type Server struct {
	v     *Viewer
	hosts []string // what a request may name as its host
	token string
	mux   *http.ServeMux
}

// NewServer returns a server of v that is to be reached at a loopback address.
func NewServer(v *Viewer, addr net.Addr) *Server {
	s := &Server{v: v, token: rand.Text(), mux: http.NewServeMux()}
	_, port, _ := net.SplitHostPort(addr.String())
	for _, host := range []string{"127.0.0.1", "localhost", "::1"} {
		s.hosts = append(s.hosts, net.JoinHostPort(host, port))
	}
	root := "/" + s.token + "/"
	web, err := fs.Sub(webFiles, "web")
	if err != nil {
		panic(err) // the directory is embedded
	}
	files := http.StripPrefix(root, http.FileServerFS(web))
	s.mux.Handle(root, files)
	s.routes(root + "api/")
	return s
}

// URL is the address of the page.
func (s *Server) URL() string { return "http://" + s.hosts[0] + "/" + s.token + "/" }

// policy is what the page may do.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// ServeHTTP answers a request, if it comes from the page itself.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if err := s.check(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// check refuses requests that others have made.
func (s *Server) check(r *http.Request) error {
	own := false
	for _, host := range s.hosts {
		own = own || r.Host == host
	}
	if !own {
		return errors.New("this server has no such name")
	}
	if o := r.Header.Get("Origin"); o != "" && o != "http://"+r.Host {
		return errors.New("not for other origins")
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none": // "none": the user has followed a link from outside of any page, or typed it
	default:
		if r.Header.Get("Sec-Fetch-Mode") != "navigate" || strings.Contains(r.URL.Path, "/api/") {
			return errors.New("not for other sites")
		}
	}
	return nil
}

// routes enters the questions of the page.
func (s *Server) routes(root string) {
	v := s.v
	for name, ask := range map[string]func(r *http.Request, p *params) (any, error){
		"about": func(_ *http.Request, p *params) (any, error) { return v.About(), p.done() },
		"tile": func(_ *http.Request, p *params) (any, error) {
			task := p.integer("task", 0, int64(len(v.t.Tasks)-1))
			level := p.integer("level", 0, tileLevels-1)
			index := p.integer("tile", 0, v.end/(tileUnits<<level))
			quick := p.flag("quick")
			if err := p.done(); err != nil {
				return nil, err
			}
			return v.Tile(int(task), int(level), index, quick)
		},
		"functions": func(_ *http.Request, p *params) (any, error) {
			return withScope(p, v, v.Functions)
		},
		"flames": func(_ *http.Request, p *params) (any, error) {
			quick := p.flag("quick")
			return withScope(p, v, func(s Scope) (*Flames, error) { return v.Flames(s, quick) })
		},
		"around": func(_ *http.Request, p *params) (any, error) {
			p.need("fn")
			return withScope(p, v, v.Around)
		},
		"slowest": func(_ *http.Request, p *params) (any, error) {
			n := p.integer("n", 1, maxSlowest)
			return withScope(p, v, func(s Scope) ([]Call, error) { return v.Slowest(s, int(n)) })
		},
		"find": func(r *http.Request, p *params) (any, error) {
			text, back := p.text("text"), p.flag("back")
			if text == "" {
				p.need("fn")
			}
			return withScope(p, v, func(s Scope) (*Call, error) { return v.Find(r.Context(), s, text, back) })
		},
		"call": func(_ *http.Request, p *params) (any, error) {
			row := p.integer("row", 0, maxRows)
			p.need("fn")
			p.need("task")
			return withScope(p, v, func(s Scope) (*Detail, error) { return v.Detail(s, int(row)) })
		},
		"note": func(_ *http.Request, p *params) (any, error) {
			kind := p.text("kind")
			p.need("kind")
			p.need("task")
			return withScope(p, v, func(s Scope) (*NoteDetail, error) { return v.Note(s, kind) })
		},
	} {
		s.mux.HandleFunc(root+name, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, name, ask) })
	}
	s.mux.HandleFunc(root, http.NotFound)
}

// withScope asks something of a scope.
func withScope[T any](p *params, v *Viewer, ask func(Scope) (T, error)) (any, error) {
	sc := p.scope(v)
	if err := p.done(); err != nil {
		return nil, err
	}
	return ask(sc)
}

// answer answers a question in JSON.
func (s *Server) answer(
	w http.ResponseWriter, r *http.Request, name string, ask func(*http.Request, *params) (any, error),
) {
	p, err := newParams(r.URL.RawQuery)
	if err == nil {
		var text []byte
		queue := s.v.answers.count
		switch {
		case name == "tile" && p.values.Get("quick") != "1":
			queue = s.v.answers.whole
		case name == "about" || name == "tile" || name == "call" || name == "note":
			queue = s.v.answers.short
		}
		text, err = s.v.answers.get(r.Context(), queue, name+"?"+p.values.Encode(), func() (any, error) {
			return ask(r, p)
		})
		if err == nil {
			w.Header().Set("Content-Type", "application/json")
			w.Write(text)
			return
		}
	}
	var bad *badRequest
	switch {
	case errors.As(err, &bad):
		http.Error(w, bad.Error(), http.StatusBadRequest)
	case r.Context().Err() != nil: // nobody is there any more
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// A badRequest says which parameter makes no sense.
type badRequest struct{ name, why string }

func (e *badRequest) Error() string { return "parameter " + e.name + ": " + e.why }

// params are the parameters of a request.
type params struct {
	values url.Values
	used   map[string]bool
	err    error // the first
}

// maxQuery bounds a request's parameters in bytes.
const maxQuery = 4096

func newParams(query string) (*params, error) {
	if len(query) > maxQuery {
		return nil, &badRequest{"", "too long"}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, &badRequest{"", "malformed"}
	}
	for name, list := range values {
		if len(list) != 1 {
			return nil, &badRequest{strconv.Quote(name), "given twice"}
		}
	}
	return &params{values: values, used: map[string]bool{}}, nil
}

func (p *params) fail(name, why string) {
	if p.err == nil {
		p.err = &badRequest{name, why}
	}
}

// text returns a parameter, "" if it is not there.
func (p *params) text(name string) string {
	p.used[name] = true
	return p.values.Get(name)
}

// need says that a parameter has to be there.
func (p *params) need(name string) {
	if !p.values.Has(name) {
		p.fail(name, "missing")
	}
}

// integer returns a parameter from least to most.
func (p *params) integer(name string, least, most int64) int64 {
	n, err := strconv.ParseInt(p.text(name), 10, 64)
	if err != nil || n < least || n > most {
		p.fail(name, "not a number from "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10))
		return least
	}
	return n
}

// flag returns a parameter that is 0 or 1, or not there.
func (p *params) flag(name string) bool { return p.values.Has(name) && p.integer(name, 0, 1) == 1 }

// scope returns the scope that the parameters from, to, task, process and fn describe: all of them but from and to
// can be left out.
func (p *params) scope(v *Viewer) Scope {
	s := Scope{Task: -1, Process: -1}
	s.From = p.integer("from", 0, v.end+1)
	s.To = p.integer("to", 0, 1<<62)
	if s.To < s.From {
		p.fail("to", "before from")
	}
	if p.values.Has("task") {
		s.Task = int(p.integer("task", 0, int64(len(v.t.Tasks)-1)))
	}
	if p.values.Has("process") {
		s.Process = int(p.integer("process", 0, int64(len(v.t.Processes)-1)))
	}
	if p.values.Has("fn") {
		image, id, ok := strings.Cut(p.text("fn"), ".")
		i, err := strconv.ParseUint(image, 10, 32)
		n, err2 := strconv.ParseUint(id, 10, 32)
		if !ok || err != nil || err2 != nil || n == 0 {
			p.fail("fn", "not an image's position, a point and a function's number")
		}
		s.Func.Image, s.Func.ID = uint32(i), uint32(n)
	}
	return s
}

// done returns what was wrong with the parameters, such as one that nobody has asked for.
func (p *params) done() error {
	for name := range p.values {
		if !p.used[name] {
			p.fail(strconv.Quote(name), "unknown")
		}
	}
	return p.err
}
