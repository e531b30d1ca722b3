package e2e

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/patch"
)

// A second reader of the trace directory, written from the description of the format alone, so that a mistake shared by the writer and
// the package trace is seen.

type function struct {
	image uint64
	name  string // raw symbol
}

type decoded struct {
	counts         map[uint64][][2]int64 // image, id: entries and exits
	entries, exits map[function]int64
	traceable      map[string]bool   // raw names of all functions with an id
	untraced       map[string]string // functions no site could be found for: kind column of the .sym file
	lost           int64
	uncounted      int64 // tasks that have not counted all they lost
	resyncFrames   int64
	comms          map[string]bool
	tasks          map[uint64]bool // pid<<32|tid
	pids           map[uint32]bool
	events, bytes  int64
	images         int
	first, last    map[uint64]int // an image's ids, from map chunks
}

// open is how many entries of the chosen functions have no exit.
func (d *decoded) open(of func(raw string) bool) int64 {
	var n int64
	for f, k := range d.entries {
		if of(f.name) {
			n += k
		}
	}
	for f, k := range d.exits {
		if of(f.name) {
			n -= k
		}
	}
	return n
}

func (d *decoded) openFunctions() string {
	var s []string
	for f, k := range d.entries {
		if k != d.exits[f] {
			s = append(s, fmt.Sprintf("\n\t%s: %d entries, %d exits", f.name, k, d.exits[f]))
		}
	}
	for f, k := range d.exits {
		if d.entries[f] == 0 {
			s = append(s, fmt.Sprintf("\n\t%s: 0 entries, %d exits", f.name, k))
		}
	}
	slices.Sort(s)
	return strings.Join(s[:min(len(s), 12)], "")
}

const (
	headerSize   = 4096
	chunkHeader  = 128
	chunkMagic   = 0x4b435446 // "FTCK"
	firstRecord  = 0x7ffe0000 // id of a record: this, type << 8, payload words
	formatNumber = 2
	kindEvents   = 1
	kindImage    = 2
	kindProfile  = 3
	kindMap      = 4

	kindSwitchedOff = 6
	kindSched       = 7
	schedEntry      = 24
	mapEntry        = 40
	traceMagic      = "FENTRYT1"
	maxChunkSize    = 1 << 30
)

func decodeTrace(t testing.TB, dir string, patched ...string) *decoded {
	t.Helper()
	d, err := decode(dir, patched...)
	if err != nil {
		t.Fatalf("trace in %s: %v", dir, err)
	}
	return d
}

// decode reads a trace. The names of programs that were patched on disk come from those files.
func decode(dir string, patched ...string) (*decoded, error) {
	d := &decoded{counts: map[uint64][][2]int64{}, entries: map[function]int64{}, exits: map[function]int64{}, untraced: map[string]string{}, traceable: map[string]bool{}, comms: map[string]bool{},
		tasks: map[uint64]bool{}, pids: map[uint32]bool{}, first: map[uint64]int{}, last: map[uint64]int{}}
	symbols, err := readSymbols(dir, d)
	if err != nil {
		return nil, err
	}
	for _, path := range patched {
		if err := readPatched(path, symbols, d); err != nil {
			return nil, err
		}
	}
	f, err := os.Open(filepath.Join(dir, "events"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(f, head); err != nil || string(head[:8]) != traceMagic || le.Uint32(head[8:]) != formatNumber {
		return nil, fmt.Errorf("no %s header in %d bytes: %v", traceMagic, info.Size(), err)
	}
	d.lost += int64(le.Uint64(head[104:]))
	d.uncounted += int64(le.Uint32(head[164:]))
	chunkSize, at, end := int64(le.Uint32(head[16:])), int64(le.Uint32(head[12:])), info.Size()
	if chunkSize < chunkHeader || chunkSize > maxChunkSize {
		return nil, fmt.Errorf("chunks of %d bytes", chunkSize)
	}
	packed := le.Uint32(head[112:]) == 1
	if next := int64(le.Uint64(head[32:])); !packed && next != 0 {
		end = min(end, at+next*chunkSize) // a growing file is sparse behind
	}
	lostOf := map[uint64]int64{} // task: highest total seen
	// Ids are those of the trace: which are whose comes first.
	start, maps := at, true
	for at+chunkHeader <= end || maps {
		if at+chunkHeader > end {
			at, maps = start, false
			continue
		}
		c := make([]byte, chunkHeader)
		if _, err := f.ReadAt(c, at); err != nil {
			return nil, err
		}
		if magic := le.Uint32(c); magic == 0 {
			at += chunkSize // never used
			continue
		} else if magic != chunkMagic {
			return nil, fmt.Errorf("offset %d: chunk magic %#x", at, magic)
		}
		kind, size := le.Uint16(c[4:]), int64(le.Uint32(c[8:]))
		if size == 0 {
			size = min(chunkSize, end-at)
		} else if size < chunkHeader || at+size > info.Size() {
			return nil, fmt.Errorf("offset %d: chunk of %d bytes in a file of %d", at, size, info.Size())
		}
		body := make([]byte, size-chunkHeader)
		if _, err := f.ReadAt(body, at+chunkHeader); err != nil {
			return nil, fmt.Errorf("offset %d: %w", at, err)
		}
		pid, tid, image := le.Uint32(c[12:]), le.Uint32(c[16:]), le.Uint64(c[40:])
		switch {
		case maps && kind == kindMap:
			for ; len(body) >= mapEntry; body = body[mapEntry:] {
				d.first[le.Uint64(body[8:])] = int(le.Uint32(body))
				d.last[le.Uint64(body[8:])] = int(le.Uint32(body)) + int(le.Uint32(body[4:])) - 1
			}
		case maps || kind == kindMap || kind == kindSwitchedOff:
		case kind == kindEvents:
			d.tasks[uint64(pid)<<32|uint64(tid)] = true
			d.pids[pid] = true
			d.comms[strings.TrimRight(string(c[64:80]), "\x00")] = true
			key := le.Uint64(c[48:]) ^ uint64(tid)<<32
			lostOf[key] = max(lostOf[key], int64(le.Uint64(c[56:])))
			err = d.chunk(body, symbols, image)
		case kind == kindImage:
			d.images++
		case kind == kindProfile:
			if first := int(le.Uint32(c[92:])); first+1 != d.first[image] {
				err = fmt.Errorf("profile of ids behind %d, image %016x has those from %d", first, image, d.first[image])
				break
			}
			err = d.profile(body, symbols[image], image)
		case kind == kindSched:
			if len(body)%schedEntry != 0 || le.Uint64(c[112:]) <= le.Uint64(c[24:]) {
				err = fmt.Errorf("%d bytes of task switches from %d to %d", len(body), le.Uint64(c[24:]), le.Uint64(c[112:]))
			}
		default:
			err = fmt.Errorf("chunk of kind %d", kind)
		}
		if err != nil {
			return nil, fmt.Errorf("offset %d: %w", at, err)
		}
		if !maps {
			d.bytes += size
		}
		if !packed {
			size = (size + chunkSize - 1) / chunkSize * chunkSize
		}
		at += size
	}
	for _, n := range lostOf {
		d.lost += n
	}
	for image, c := range d.counts {
		for id, name := range symbols[image] {
			if c[id][0] != 0 {
				d.entries[function{image, name}] += c[id][0]
			}
			if c[id][1] != 0 {
				d.exits[function{image, name}] += c[id][1]
			}
		}
	}
	return d, nil
}

// owner is the image that has an id; image, that of the chunk, if no other has it.
func (d *decoded) owner(id int, image uint64) uint64 {
	if id >= d.first[image] && id <= d.last[image] {
		return image
	}
	for other, first := range d.first {
		if id >= first && id <= d.last[other] {
			return other
		}
	}
	return image
}

// chunk counts one chunk's events, which are mostly of the image that its process began with.
func (d *decoded) chunk(b []byte, symbols map[uint64][]string, home uint64) error {
	le := binary.LittleEndian
	for i := 0; i+8 <= len(b); i += 8 {
		w := le.Uint64(b[i:])
		if w == 0 {
			continue
		}
		id := int(w >> 32 & 0x7fffffff)
		if id >= firstRecord {
			typ, n := id>>8&0x7f, id&0xff
			switch {
			case id>>16 != firstRecord>>16:
				return fmt.Errorf("word %d: id %#x", i/8, id)
			case typ != 3 && typ < 16 || typ > 27 || id&0x8000 != 0: // 3: why a goroutine waits
				return fmt.Errorf("word %d: record of type %d, or it is open: id %#x", i/8, typ, id)
			case i+8*n+8 > len(b):
				return fmt.Errorf("word %d: payload of %#x does not fit", i/8, id)
			case typ == 18:
				d.resyncFrames += int64(le.Uint64(b[i+8:]))
			}
			i += 8 * n
			continue
		}
		image := d.owner(id, home)
		names := symbols[image]
		id -= d.first[image] - 1
		if id < 1 || id >= len(names) || names[id] == "" {
			return fmt.Errorf("word %d: id %d is no function of image %016x (%d known)", i/8, id, image, len(names))
		}
		d.events++
		if d.counts[image] == nil {
			d.counts[image] = make([][2]int64, len(names))
		}
		d.counts[image][id][w>>63]++
	}
	return nil
}

// profile adds a profile chunk's counts.
func (d *decoded) profile(b []byte, names []string, image uint64) error {
	le := binary.LittleEndian
	for id := 0; id*32+32 <= len(b); id++ {
		if n := le.Uint64(b[id*32:]); n != 0 {
			if id >= len(names) || names[id] == "" {
				return fmt.Errorf("profile of id %d, which is no function of image %016x", id, image)
			}
			d.entries[function{image, names[id]}] += int64(n)
			d.exits[function{image, names[id]}] += int64(n)
		}
	}
	return nil
}

// readSymbols reads every .sym file of a trace: names by id for each image.
func readSymbols(dir string, d *decoded) (map[uint64][]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.sym"))
	if err != nil {
		return nil, err
	}
	out := map[uint64][]string{}
	for _, path := range files {
		image, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(path), ".sym"), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		var names []string
		sc := bufio.NewScanner(f)
		sc.Buffer(nil, 1<<20)
		for n := 1; sc.Scan(); n++ {
			line := sc.Text()
			if strings.HasPrefix(line, "#") || line == "" {
				continue
			}
			col := strings.Split(line, "\t")
			if len(col) < 6 {
				return nil, fmt.Errorf("%s:%d: %d columns", path, n, len(col))
			}
			id, err := strconv.Atoi(col[0])
			if err != nil || id < 0 || id > 1<<24 {
				return nil, fmt.Errorf("%s:%d: id %q", path, n, col[0])
			}
			if id == 0 {
				d.untraced[functionName(col[5])] = col[4]
				continue
			}
			for len(names) <= id {
				names = append(names, "")
			}
			if names[id] = col[5]; col[5] == "" {
				names[id] = col[1] // its address
			}
			d.traceable[names[id]] = true
		}
		f.Close()
		if sc.Err() != nil {
			return nil, sc.Err()
		}
		out[image] = names
	}
	return out, nil
}

// readPatched adds the names of a patched program: its sites by id, from what the patch left in the file, and the symbols there.
func readPatched(path string, out map[uint64][]string, d *decoded) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	f, err := elfio.Parse(b)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	in, err := patch.Inspect(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if out[in.ImageID] != nil {
		return nil
	}
	e, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	symbols, err := e.Symbols()
	if errors.Is(err, elf.ErrNoSymbols) { // stripped
		symbols, err = e.DynamicSymbols()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	at := map[uint64]string{}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && (at[s.Value] == "" || s.Name < at[s.Value]) {
			at[s.Value] = s.Name
		}
	}
	names := make([]string, len(in.Sites)+1)
	for i, s := range in.Sites {
		if names[i+1] = at[s.Func]; names[i+1] == "" {
			names[i+1] = strconv.FormatUint(s.Func, 16)
		}
		d.traceable[names[i+1]] = true
	}
	out[in.ImageID] = names
	return nil
}
