//go:build linux

package tracefs

import (
	"fmt"
	"sync"
	"time"
)

// What dump and cpudump write, apart from the files: whoever reads the console may be slow, or may not read at all, and the
// files must go on. What there is no room for is counted.

// console writes texts one after another.
type console struct {
	write func(text []byte) // takes as long as it wants
	ended chan struct{}     // run has returned

	mu      sync.Mutex
	more    sync.Cond
	texts   [][]byte // that wait to be written
	size    int      // of them, in bytes
	dropped int      // texts, since there was no room
	over    bool     // there are no more
}

// mostConsole bounds what waits to be written, in bytes. One text may have more.
const mostConsole = 16 << 20

// newConsole returns a console, which run serves; nil if nobody wants what it writes.
func newConsole(write func(text []byte)) *console {
	if write == nil {
		return nil
	}
	c := &console{write: write, ended: make(chan struct{})}
	c.more.L = &c.mu
	return c
}

// put has a text written, if there is room. It does not wait.
func (c *console) put(text []byte) {
	if c == nil || len(text) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.texts) > 0 && c.size+len(text) > mostConsole {
		c.dropped++
		return
	}
	c.texts, c.size = append(c.texts, text), c.size+len(text)
	c.more.Signal()
}

// run writes until the end.
func (c *console) run() {
	defer close(c.ended)
	for {
		c.mu.Lock()
		for len(c.texts) == 0 && c.dropped == 0 && !c.over {
			c.more.Wait()
		}
		var text []byte
		switch {
		case len(c.texts) > 0:
			text = c.texts[0]
			c.texts, c.size = c.texts[1:], c.size-len(text)
		case c.dropped > 0:
			text = fmt.Appendf(nil, "# dumps for which there was no room: %d\n", c.dropped)
			c.dropped = 0
		default:
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		c.write(text)
	}
}

// end waits until everything is written, but no longer than a while: nobody may read.
func (c *console) end(while time.Duration) {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.over = true
	c.more.Signal()
	c.mu.Unlock()
	select {
	case <-c.ended:
	case <-time.After(while):
	}
}
