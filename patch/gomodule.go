package patch

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/record/golang"
)

// The Go module.
//
// Go's runtime looks up every address that it meets: of a goroutine that it stops, of one that has faulted, of one that a
// profile counts. It knows code by modules, a list of tables that begins with the program's own. What a plan adds is the
// second module of that list. For each instruction it says what the tables of the first say of the original: where the
// frame is, whether the goroutine may be stopped, file, line and inlined calls. So moved instructions may fault, and
// backtraces, profiles and panics are what they were.
//
// A function's code is several functions to the runtime: one up to the place where its first event begins again after an
// interruption (RestartAtEntry goes to the beginning of a function), one up to that of the second, and so on. All have the
// same name. Each has tables from its own beginning to the end of all, because two things that it needs are there once,
// behind the code: the way to where a recovered function returns from, and a place for each call that has been inlined
// into it, a phantom: the runtime names the place of such a call by an address inside the function, and nothing executes
// there. It has a byte or, on AArch64, four. One more follows, because addresses of calls are those behind them.
//
// Names, files, compilation units and the functions' other data are those of the first module, which the second one
// refers to. It is marked as bad, the runtime's word for a module whose data it must not look at: such modules are left
// out of all that is about types, data and pointers, and still looked up by address. The structures are those of Go's
// runtime (symtab.go); which versions are known says record/golang.

// phantoms are the addresses that inlined calls are known by.
type phantoms struct {
	tree  []byte        // the function's tree of inlined calls, 16 bytes each; nil: it is not needed
	where map[int32]int // by index in the tree: which of the phantoms, from 0
	calls []uint64      // what they stand for: addresses of the calls in the original
	in    golang.Values // index by address
}

const inlinedSize = 16  // of an entry of the tree
const inlinedParent = 8 // offset in it of the call's place, relative to the function

// n is how many places follow the code.
func (p *phantoms) n() int { return len(p.calls) + 1 }

// phantom is where the i-th of them is.
func (c *goCode) phantom(i int) int { return c.size + i*len(c.g.goFill()) }

// addPhantoms finds the inlined calls that moved code is in.
func (c *goCode) addPhantoms(im *golang.Image) error {
	rec := c.f.Record()
	var err error
	if c.in, err = im.Values(c.f, golang.PCData(rec, golang.PCDataInline)); err != nil {
		return err
	}
	tree := golang.FuncData(rec, golang.FuncDataInline)
	if c.in == nil || tree == golang.NoFuncData {
		c.in = nil
		return nil
	}
	c.phantoms.where = map[int32]int{}
	last := int32(-1)
	add := func(pc uint64) error {
		for i := c.in.At(pc); i >= 0; i = c.in.At(pc) {
			if _, ok := c.phantoms.where[i]; ok {
				return nil
			}
			b, err := im.GoFuncData(tree, int(i)*inlinedSize, inlinedSize)
			if err != nil {
				return err
			}
			pc = c.f.Entry + uint64(int64(int32(le.Uint32(b[inlinedParent:]))))
			c.phantoms.where[i] = len(c.calls)
			c.calls = append(c.calls, pc)
			last = max(last, i)
		}
		return nil
	}
	for _, p := range c.parts {
		if err := add(p.pc); err != nil {
			return err
		}
	}
	if last < 0 {
		c.in = nil
		return nil
	}
	c.tree, err = im.GoFuncData(tree, 0, (int(last)+1)*inlinedSize)
	return err
}

// goModule encodes the module.
type goModule struct {
	im    *golang.Image
	codes []*goCode
	base  uint64
	run   uint64 // where moduledata is at run time: base, or where a program that is relocated has room for it
	b     []byte
	words []uint32 // offsets of those that are addresses, in moduledata and the header behind it
	funcs []moduleFunc
}

// A moduleFunc is a function of the module.
type moduleFunc struct {
	entry uint64
	rec   []byte
}

func (m *goModule) here() uint64 { return m.base + uint64(len(m.b)) }

func (m *goModule) align(n int) {
	for len(m.b)%n != 0 {
		m.b = append(m.b, 0)
	}
}

// Sizes of the runtime's structures.
const (
	pcHeaderSize  = 0x48
	findBucket    = 4096 // bytes of code that a row of the table of functions by address is for
	findSubBucket = 256
)

// goModuleSize is the size of moduledata and of the header behind it, which both have addresses.
func goModuleSize(im *golang.Image) uint64 { return uint64(im.Version.Size+15)&^15 + pcHeaderSize }

// encode returns the module for an address: moduledata, the header, and then all that they refer to.
func (m *goModule) encode(base uint64) ([]byte, error) {
	v := &m.im.Version
	m.base, m.b = base, make([]byte, goModuleSize(m.im))
	if err := m.addFuncs(); err != nil {
		return nil, err
	}
	m.b = append(m.b, 0, 0)
	pctabLen := m.here() - m.im.Pctab
	if pctabLen > math.MaxUint32 {
		return nil, fmt.Errorf("the added code is %d bytes away from the program's tables", pctabLen)
	}
	last := m.codes[len(m.codes)-1]
	from, to := m.codes[0].at, last.at+uint64(last.phantom(last.phantoms.n()))
	pcln, pclnLen := m.functab(from, to)
	find, err := m.findtab(from, to)
	if err != nil {
		return nil, err
	}
	header := goModuleSize(m.im) - pcHeaderSize
	if err := m.header(header, from, pcln); err != nil {
		return nil, err
	}
	word := m.address
	slice := func(off int, at, n uint64) {
		word(off, at)
		le.PutUint64(m.b[off+8:], n)
		le.PutUint64(m.b[off+16:], n)
	}
	word(0, m.run+header)
	for off, s := range m.im.Shared() {
		slice(off, s[0], s[1])
	}
	slice(0x50, m.im.Pctab, pctabLen)
	slice(0x68, pcln, pclnLen)
	slice(0x80, pcln, uint64(len(m.funcs)+1))
	word(0x98, find)
	word(0xa0, from)
	word(0xa8, to)
	word(0xb0, from)
	word(0xb8, to)
	word(int(v.Rodata), m.im.Rodata)
	word(int(v.Rodata)+8, m.im.GoFunc)
	m.b[v.Bad] = 1
	return m.b, nil
}

// funcsOf are the functions that the code of one is to the runtime, and their tables.
type funcsOf struct {
	funcs  []moduleFunc
	tables []byte
	places []tablePlace // in records, of what is in tables
}

// A tablePlace is a word of a record that says where a table is.
type tablePlace struct {
	rec  []byte // from the word on
	at   int    // in tables
	tree bool   // the word counts from the functions' data, not from the tables of values
}

// addFuncs adds the functions of all codes, which are made on all processors.
func (m *goModule) addFuncs() error {
	made := make([]funcsOf, len(m.codes))
	errs := make([]error, len(m.codes))
	const perTask = 64
	parallel.Ranges(len(m.codes), perTask, func(from, to int) {
		for i := from; i < to; i++ {
			errs[i] = made[i].make(m.im, m.codes[i])
		}
	})
	size := 0
	for i := range made {
		if errs[i] != nil {
			return fmt.Errorf("%s at %#x: %w", m.codes[i].f.Name, m.codes[i].f.Entry, errs[i])
		}
		size += len(made[i].tables)
	}
	m.b = slices.Grow(m.b, size)
	for i := range made {
		at := m.here()
		for _, p := range made[i].places {
			base := m.im.Pctab
			if p.tree {
				base = m.im.GoFunc
			}
			le.PutUint32(p.rec, uint32(at+uint64(p.at)-base))
		}
		m.b = append(m.b, made[i].tables...)
		m.funcs = append(m.funcs, made[i].funcs...)
	}
	return nil
}

// make makes the functions of one code.
func (o *funcsOf) make(im *golang.Image, c *goCode) error {
	old := c.f.Record()
	npc := int(le.Uint32(old[golang.RecNPCData:]))
	head, data := slices.Clone(old[:golang.RecSize]), slices.Clone(old[golang.RecSize:])
	if npc == 0 { // a table that tells where the goroutine must not be stopped is always needed
		npc = 1
		data = slices.Insert(data, 0, 0, 0, 0, 0)
		le.PutUint32(head[golang.RecNPCData:], 1)
	}
	if c.in == nil && npc > golang.PCDataInline {
		le.PutUint32(data[4*golang.PCDataInline:], 0)
	}
	rec := append(head, data...)
	words := []int{golang.RecPCSP, golang.RecPCFile, golang.RecPCLine}
	for i := range npc {
		words = append(words, golang.RecSize+4*i)
	}
	columns := make([][]int32, len(words)) // values of the parts; nil: there is no such table
	for i, w := range words {
		off := le.Uint32(rec[w:])
		if unsafe := w == golang.RecSize; off != 0 || unsafe {
			v, err := im.Values(c.f, off)
			if err != nil {
				return err
			}
			columns[i] = c.column(v, unsafe)
		}
	}
	entries := []int{0}
	for i := range c.events {
		entries = append(entries, c.events[i].at+c.g.goShape().Begin)
	}
	for i, entry := range entries {
		end := c.size
		if i+1 < len(entries) {
			end = entries[i+1]
		}
		rec := slices.Clone(rec)
		if c.after != 0 {
			le.PutUint32(rec[golang.RecDeferReturn:], uint32(c.after-entry))
		}
		for i, w := range words {
			if columns[i] != nil {
				o.places = append(o.places, tablePlace{rec: rec[w:], at: len(o.tables)})
				o.tables = c.appendTable(o.tables, entry, end, columns[i])
			}
		}
		if c.in != nil {
			w := golang.RecSize + 4*(npc+golang.FuncDataInline)
			o.places = append(o.places, tablePlace{rec: rec[w:], at: len(o.tables), tree: true})
			o.tables = c.appendTree(o.tables, entry)
		}
		o.funcs = append(o.funcs, moduleFunc{c.at + uint64(entry), rec})
	}
	return nil
}

// column returns the values of a function's table for its parts, and then for its phantoms.
func (c *goCode) column(v golang.Values, unsafe bool) []int32 {
	out := make([]int32, 0, len(c.parts)+len(c.calls))
	for _, p := range c.parts {
		x := v.At(p.pc)
		switch {
		case unsafe && (x < -1 || p.mode == unsafePart):
			x = golang.Unsafe
		case unsafe && p.mode == restarts:
			x = golang.RestartAtEntry
		}
		out = append(out, x)
	}
	for _, pc := range c.calls {
		x := v.At(pc)
		if unsafe {
			x = golang.Unsafe
		}
		out = append(out, x)
	}
	return out
}

// appendTable appends a table of the function that begins at an offset, which is a part's, and ends before another one. Of
// what is behind that, nobody asks it but for the way back of a recovered function, and for phantoms.
func (c *goCode) appendTable(dst []byte, entry, end int, values []int32) []byte {
	search := func(at int) int { return sort.Search(len(c.parts), func(i int) bool { return c.parts[i].at >= at }) }
	place := func(i int) int {
		if i < len(c.parts) {
			return c.parts[i].at
		}
		return c.phantom(i - len(c.parts))
	}
	behind, common := search(end), len(c.parts)
	if c.after != 0 {
		common--
	}
	last, from := int32(-1), entry // of the newest row that is there
	for i := search(entry); i < len(values); {
		next := i + 1
		if next == behind {
			next = max(next, common)
		}
		if next < len(values) && values[next] == values[i] {
			i = next
			continue
		}
		to := c.phantom(c.phantoms.n()) // with what is behind all
		if next < len(values) {
			to = place(next)
		}
		d := values[i] - last
		dst = appendUvarint32(dst, uint32(d<<1)^uint32(d>>31))
		dst = appendUvarint32(dst, uint32((to-from)/len(c.g.goFill())))
		last, from, i = values[i], to, next
	}
	return append(dst, 0)
}

func appendUvarint32(dst []byte, v uint32) []byte {
	for v >= 0x80 {
		dst = append(dst, byte(v)|0x80)
		v >>= 7
	}
	return append(dst, byte(v))
}

// appendTree appends the tree of inlined calls, with their places relative to an offset of the code.
func (c *goCode) appendTree(dst []byte, entry int) []byte {
	start := len(dst)
	dst = append(dst, c.tree...)
	for i, n := range c.phantoms.where {
		le.PutUint32(dst[start+int(i)*inlinedSize+inlinedParent:], uint32(c.phantom(n)-entry))
	}
	return dst
}

// functab appends the table of functions, by address, and their records behind it.
func (m *goModule) functab(from, to uint64) (at, size uint64) {
	m.align(16)
	at = m.here()
	pos := uint32(8*len(m.funcs) + 8)
	for i := range m.funcs {
		f := &m.funcs[i]
		le.PutUint32(f.rec[golang.RecEntry:], uint32(f.entry-from))
		m.b = le.AppendUint32(m.b, uint32(f.entry-from))
		m.b = le.AppendUint32(m.b, pos)
		pos += uint32(len(f.rec))
	}
	m.b = le.AppendUint32(le.AppendUint32(m.b, uint32(to-from)), 0)
	for i := range m.funcs {
		m.b = append(m.b, m.funcs[i].rec...)
	}
	return at, m.here() - at
}

// findtab appends the table by which the runtime finds the function of an address: for each 4096 bytes of code the first
// one there, and for each 256 of them how many come before.
func (m *goModule) findtab(from, to uint64) (uint64, error) {
	m.align(16)
	at := m.here()
	index := func(off uint64) int {
		return sort.Search(len(m.funcs), func(i int) bool { return m.funcs[i].entry-from > off }) - 1
	}
	for a := uint64(0); a < to-from; a += findBucket {
		first := index(a)
		m.b = le.AppendUint32(m.b, uint32(first))
		for s := uint64(0); s < findBucket; s += findSubBucket {
			n := index(a+s) - first
			if n > math.MaxUint8 {
				return 0, internalf("%d functions in %d bytes", n, findBucket)
			}
			m.b = append(m.b, byte(n))
		}
	}
	return at, nil
}

// address writes a word that is an address.
func (m *goModule) address(off int, x uint64) {
	le.PutUint64(m.b[off:], x)
	m.words = append(m.words, uint32(off))
}

// header writes a copy of pclntab's header, at an offset, that is right for this module.
func (m *goModule) header(off, from, pcln uint64) error {
	h, err := m.im.Header(pcHeaderSize)
	if err != nil {
		return err
	}
	copy(m.b[off:], h)
	h = m.b[off:][:pcHeaderSize]
	le.PutUint64(h[0x08:], uint64(len(m.funcs)))
	if m.im.Version.Header {
		m.address(int(off)+0x18, from)
	}
	for o, to := range map[int]uint64{
		0x20: m.im.FuncNames, 0x28: m.im.CUTab, 0x30: m.im.FileTab, 0x38: m.im.Pctab, 0x40: pcln,
	} {
		le.PutUint64(h[o:], to-(m.run+off))
	}
	return nil
}
