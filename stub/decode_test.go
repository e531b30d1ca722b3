package stub

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// events is what is in a trace, as far as the tests of this package look at it.
type events struct {
	tasks   map[task]*calls
	calls   map[string]int // entries by function
	exits   map[string]int
	open    int            // calls without an exit, all tasks
	strays  int            // exits without an entry
	holes   int            // slots that are zero, before others
	codes   map[uint32]int // records by type
	marks   []string       // payloads
	images  []map[string]string
	lost    uint64
	depth   int // greatest
	profile map[string]profile
	byTask  map[task]map[string]int // of the tracer count
	order   []task
	maps    []mapped
}

type profile struct{ calls, total, self, max uint64 }

type task struct {
	pid, tid uint32
	key      uint64
}

type calls struct {
	stacks map[uint64][]uint32
	stack  uint64
	aside  []uint32
	high   uint64
	last   uint64
	resync uint64 // time of the resync that is the word before
	entry  map[uint32]int
	parent uint64
	lost   uint64
}

// A mapped image is an entry of a map chunk.
type mapped struct {
	first, count     uint32
	image            uint64
	loaded, unloaded uint64
}

// decode reads an events file or the contents of a pool, simply and strictly. sites are
// the names of the functions of all images but those in guests.
func decode(b []byte, sites []string, guests ...map[uint64][]string) (*events, error) {
	le := binary.LittleEndian
	var maps []mapped
	name := func(id uint32) (string, error) {
		for _, m := range maps {
			if id-m.first >= m.count {
				continue
			}
			names := sites
			for _, g := range guests {
				if n, ok := g[m.image]; ok {
					names = n
				}
			}
			if i := int(id - m.first); i < len(names) {
				return names[i], nil
			}
			return "", fmt.Errorf("id %d is function %d of %d of image %#x", id, id-m.first+1, len(names), m.image)
		}
		return "", fmt.Errorf("id %d is no image's: %v", id, maps)
	}
	if len(b) < 4096 || string(b[:8]) != "FENTRYT1" || le.Uint32(b[8:]) != 2 {
		return nil, fmt.Errorf("no trace")
	}
	ev := &events{tasks: map[task]*calls{}, calls: map[string]int{}, exits: map[string]int{}, codes: map[uint32]int{}, profile: map[string]profile{}, byTask: map[task]map[string]int{}}
	ev.lost = le.Uint64(b[104:])
	size := int(le.Uint32(b[16:]))
	used := int(le.Uint64(b[32:]))
	type chunk struct {
		task   task
		number uint32
		b      []byte
	}
	var chunks []chunk
	var tables, counts [][]byte
	for i := 0; ; i++ {
		off := int(le.Uint32(b[12:])) + i*size
		if off+size > len(b) {
			break
		}
		c := b[off : off+size]
		if le.Uint32(c) == 0 {
			continue
		}
		if i >= used && le.Uint32(b[20:]) == 0 {
			return nil, fmt.Errorf("chunk %d, but only %d were given out", i, used)
		}
		if le.Uint32(c) != 0x4b435446 {
			return nil, fmt.Errorf("chunk %d: magic %#x", i, le.Uint32(c))
		}
		k := task{le.Uint32(c[12:]), le.Uint32(c[16:]), le.Uint64(c[48:])}
		end := int(le.Uint32(c[8:]))
		if end == 0 {
			end = size
		}
		switch kind := le.Uint16(c[4:]); kind {
		case 1:
			chunks = append(chunks, chunk{k, le.Uint32(c[20:]), c[:end]})
		case 2:
			m := map[string]string{}
			for s := c[128:end]; len(s) > 0 && s[0] != 0; {
				n := 0
				for s[n] != 0 {
					n++
				}
				for j := range n {
					if s[j] == '=' {
						m[string(s[:j])] = string(s[j+1 : n])
						break
					}
				}
				s = s[n+1:]
			}
			ev.images = append(ev.images, m)
		case 3:
			tables = append(tables, b[off:off+end])
			i += (int(le.Uint32(c[8:]))+size-1)/size - 1
		case 5:
			counts = append(counts, b[off:off+end])
			i += (int(le.Uint32(c[8:]))+size-1)/size - 1
		case 4:
			for e := c[128:end]; len(e) > 0; e = e[40:] {
				m := mapped{le.Uint32(e), le.Uint32(e[4:]), le.Uint64(e[8:]), le.Uint64(e[24:]), le.Uint64(e[32:])}
				maps = slices.DeleteFunc(maps, func(o mapped) bool { return o.first == m.first })
				maps = append(maps, m)
			}
		default:
			return nil, fmt.Errorf("chunk %d: kind %d", i, kind)
		}
	}
	ev.maps = maps
	for _, c := range tables {
		first := le.Uint32(c[92:])
		for id := uint32(1); 128+32*int(id) < len(c); id++ {
			n, err := name(first + id)
			if err != nil {
				return nil, err
			}
			p := ev.profile[n]
			e := c[128+32*id:]
			p.calls += le.Uint64(e)
			p.total += le.Uint64(e[8:])
			p.self += le.Uint64(e[16:])
			p.max = max(p.max, le.Uint64(e[24:]))
			ev.profile[n] = p
			ev.calls[n] = int(p.calls)
		}
	}
	for _, c := range counts {
		k := task{le.Uint32(c[12:]), le.Uint32(c[16:]), le.Uint64(c[48:])}
		if ev.byTask[k] == nil {
			ev.byTask[k] = map[string]int{}
		}
		for id := uint32(1); 128+8*int(id) < len(c); id++ {
			n, err := name(le.Uint32(c[92:]) + id)
			if err != nil {
				return nil, err
			}
			calls := int(le.Uint64(c[128+8*id:]))
			ev.calls[n] += calls
			ev.byTask[k][n] += calls
		}
	}
	for _, c := range chunks {
		k := ev.tasks[c.task]
		if k == nil {
			k = &calls{stacks: map[uint64][]uint32{}, entry: map[uint32]int{}}
			ev.tasks[c.task] = k
			ev.order = append(ev.order, c.task)
		}
		_ = c.number
	}
	next := map[task]uint32{}
	for len(chunks) > 0 {
		progress := false
		for i, c := range chunks {
			if c.number != next[c.task] {
				continue
			}
			next[c.task]++
			chunks = append(chunks[:i:i], chunks[i+1:]...)
			progress = true
			k := ev.tasks[c.task]
			k.high = le.Uint64(c.b[24:]) >> 32
			k.stack = le.Uint64(c.b[104:])
			// "So far": the last one of a task counts.
			if lost := le.Uint64(c.b[56:]); lost > k.lost {
				ev.lost += lost - k.lost
				k.lost = lost
			}
			zeros := 0         // behind the last word
			event := uint64(0) // the last one
			for w := c.b[128:]; len(w) > 0; {
				v := le.Uint64(w)
				w = w[8:]
				if v == 0 {
					zeros++
					continue
				}
				ev.holes, zeros = ev.holes+zeros, 0
				id := uint32(v>>32) & 0x7fffffff
				exit := v>>63 != 0
				if id>>16 == 0x7ffe {
					code, n := id>>8&0x7f, int(id&0xff)
					if id&0x8000 != 0 {
						return nil, fmt.Errorf("record of type %d is open", code)
					}
					if 8*n > len(w) {
						return nil, fmt.Errorf("record of type %d with %d words, of which %d are there", code, n, len(w)/8)
					}
					ev.codes[code]++
					arg := uint64(0)
					if n > 0 {
						arg = le.Uint64(w)
					}
					if code == 24 {
						ev.marks = append(ev.marks, string(w[:8*n]))
					}
					w = w[8*n:]
					s := k.stacks[k.stack]
					switch code {
					case 3: // what is captured of one end of a call directly follows it, at its time, or in the next slot
						if event>>63 != v>>63 || uint32(v)-uint32(event) > 8 {
							return nil, fmt.Errorf("what is captured at %#x follows an event at %#x", v, event)
						}
					case 16:
						if arg != 0 {
							k.high = arg >> 32
						}
					case 18:
						n := min(int(arg), len(s))
						if n < int(arg) {
							return nil, fmt.Errorf("resync %d, %d open", arg, len(s))
						}
						k.resync = k.high<<32 | v&0xffffffff
						k.aside = append(k.aside, s[len(s)-n:]...)
						k.stacks[k.stack] = s[:len(s)-n]
					case 19:
						k.stack = arg
					case 20:
						k.parent = arg
					case 17, 21, 22, 23, 24, 25:
					default:
						return nil, fmt.Errorf("record of type %d", code)
					}
					continue
				}
				event = v
				name, err := name(id)
				if err != nil {
					return nil, err
				}
				t, resync := k.high<<32|v&0xffffffff, k.resync
				k.resync = 0
				if exit && t < resync {
					return nil, fmt.Errorf("%s ends at %d, before what it called: %d", name, t, resync)
				}
				if t+1<<26 < k.last {
					return nil, fmt.Errorf("time goes back from %d to %d", k.last, t)
				}
				k.last = max(t, k.last)
				s := k.stacks[k.stack]
				if !exit {
					ev.calls[name]++
					k.stacks[k.stack] = append(s, id)
					ev.depth = max(ev.depth, len(s)+1)
					continue
				}
				ev.exits[name]++
				if n := len(s); n > 0 && s[n-1] == id {
					k.stacks[k.stack] = s[:n-1]
					continue
				}
				found := false
				for j := len(k.aside) - 1; j >= 0 && !found; j-- {
					if k.aside[j] == id {
						k.aside = append(k.aside[:j:j], k.aside[j+1:]...)
						found = true
					}
				}
				if !found {
					ev.strays++
				}
			}
			break
		}
		if !progress {
			return nil, fmt.Errorf("task %v: chunk %d is missing", chunks[0].task, next[chunks[0].task])
		}
	}
	for _, k := range ev.tasks {
		for _, s := range k.stacks {
			ev.open += len(s)
		}
	}
	return ev, nil
}
