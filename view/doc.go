// Package view serves a trace as a page for a browser on the same machine: a timeline of every task, flame graphs, a
// table of functions, search, callers and callees, the slowest calls.
//
//	v, err := view.New(t)
//	if err != nil {
//		return err
//	}
//	l, err := net.Listen("tcp", "127.0.0.1:0")
//	if err != nil {
//		return err
//	}
//	s := view.NewServer(v, l.Addr())
//	fmt.Println(s.URL())
//	return http.Serve(l, s)
//
// # Layers
//
// A [Viewer] answers questions about a trace as values: no HTTP in it. A [Server] checks who asks, reads parameters
// and writes JSON. The page (web) is plain modules of JavaScript, HTML and CSS, as they are; there is nothing to
// build.
//
// The page never has the trace, only what is on the screen. A timeline is made of tiles, 512 units of a power of two
// of nanoseconds each, of which a tile has no more than a box each and row: calls of a unit or more as they are,
// shorter ones merged. Tiles of far zooms come from the trace's index alone ([trace.Outline]), those of near ones
// from the few blocks of events in them; what a tile costs does not depend on how long the trace is.
//
// # Security
//
// A trace says what programs did, and anybody's programs: neither may other pages of the browser or other users of
// the machine read it, nor may names in it do anything. The server answers only below a random token in the path, to
// requests that name its loopback address as the host, so that no name that an attacker resolves to 127.0.0.1 serves
// (DNS rebinding), and never to another origin. The page may run its own files only (Content-Security-Policy), makes
// no HTML of text, and all text is made safe first (package safetext).
package view
