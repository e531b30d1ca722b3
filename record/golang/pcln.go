package golang

import (
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/fentry-dev/fentry/arch/arm64"
)

// A Func is a function of the table.
type Func struct {
	Entry uint64
	Next  uint64 // entry of the next function; padding may be before it
	Name  string

	rec []byte // its record: runtime._func, with what follows
}

// Offsets in a record, which are the same from Go 1.21 on.
const (
	RecEntry       = 0
	recName        = 4
	RecDeferReturn = 12
	RecPCSP        = 16 // tables: of the stack pointer,
	RecPCFile      = 20 // of files
	RecPCLine      = 24 // and of lines
	RecNPCData     = 28
	recFlag        = 41
	RecNFuncData   = 43
	RecSize        = 44 // PCData follows, and FuncData

	// flagAsm is of functions in assembly.
	flagAsm = 4
)

// Numbers of what follows a record.
const (
	PCDataUnsafe   = 0 // the table that tells where a goroutine must not be stopped
	PCDataInline   = 2 // the table of inlined calls
	FuncDataInline = 3 // the tree of inlined calls
)

// Values of the table PCDataUnsafe.
const (
	Unsafe         = -2 // a goroutine must not be stopped here
	RestartAtEntry = -5 // it can, if it goes on at the function's entry
)

// Record returns the function's record, which is read-only.
func (f *Func) Record() []byte { return f.rec }

// DeferReturn is where a function goes on that has recovered from a panic, 0: it defers nothing.
func (f *Func) DeferReturn() uint64 {
	if d := le.Uint32(f.rec[RecDeferReturn:]); d != 0 {
		return f.Entry + uint64(d)
	}
	return 0
}

// Assembly reports whether a function is written in Go's assembly: neither compiled, nor of an object that was linked with it.
func (f *Func) Assembly() bool { return f != nil && f.isAsm() }

// Compiled reports whether Go has made it, not C.
func (f *Func) Compiled() bool { return f != nil && le.Uint32(f.rec[RecPCSP:]) != 0 }

// isC reports whether it is of an object that was linked with Go's: where Go's own linker has done that, its table has it.
func (f *Func) isC() bool { return !f.Compiled() && !f.isAsm() && !strings.HasPrefix(f.Name, "go:") }

func (f *Func) isAsm() bool { return f.rec[recFlag]&flagAsm != 0 }

// readFuncs reads the table of functions: pairs of offsets, in code and in the table itself, sorted, and one more with
// the end of the code.
func (im *Image) readFuncs() error {
	b, err := im.f.Bytes(im.Pclntab, 16)
	if err != nil {
		return err
	}
	n := le.Uint64(b[8:])
	if n >= uint64(len(im.pcln))/8 {
		return fmt.Errorf("%d functions in %d bytes", n, len(im.pcln))
	}
	im.Funcs = make([]Func, 0, n)
	for i := range n {
		from, to := le.Uint32(im.pcln[8*i:]), le.Uint32(im.pcln[8*i+8:])
		if from == to { // of C's or in assembly, and empty
			continue
		}
		if from > to || uint64(to) > uint64(len(im.text)) {
			return fmt.Errorf("function %d: code at offsets %#x to %#x", i, from, to)
		}
		rec, err := im.record(le.Uint32(im.pcln[8*i+4:]))
		if err != nil {
			return fmt.Errorf("function %d: %w", i, err)
		}
		name := uint64(le.Uint32(rec[recName:]))
		if name >= uint64(len(im.names)) {
			return fmt.Errorf("function %d: name at offset %#x", i, name)
		}
		im.Funcs = append(im.Funcs, Func{
			Entry: im.TextStart + uint64(from), Next: im.TextStart + uint64(to), Name: im.nameAt(name), rec: rec,
		})
	}
	return nil
}

// maxName bounds the names of functions, which those of generics make long.
const maxName = 1 << 16

// record returns the record at an offset.
func (im *Image) record(off uint32) ([]byte, error) {
	if uint64(off)+RecSize > uint64(len(im.pcln)) {
		return nil, fmt.Errorf("record at offset %#x", off)
	}
	b := im.pcln[off:]
	size := RecSize + 4*(uint64(le.Uint32(b[RecNPCData:]))+uint64(b[RecNFuncData]))
	if size > uint64(len(b)) {
		return nil, fmt.Errorf("record at offset %#x: %d bytes", off, size)
	}
	return b[:size:size], nil
}

// Values is a table of values by address: the value of an address is that of the first row that ends behind it.
type Values []valueRow

type valueRow struct {
	end   uint64
	value int32
}

// At returns the value at an address; -1: there is none, as the runtime has it.
func (v Values) At(pc uint64) int32 {
	if i := sort.Search(len(v), func(i int) bool { return v[i].end > pc }); i < len(v) {
		return v[i].value
	}
	return -1
}

// Values decodes a table of a function, at an offset of pctab: differences of values and of addresses in turn, each a
// varint, the former zigzag. Offset 0 is none.
func (im *Image) Values(f *Func, off uint32) (Values, error) {
	if off == 0 {
		return nil, nil
	}
	if uint64(off) >= uint64(len(im.pctab)) {
		return nil, fmt.Errorf("%s: table at offset %#x", f.Name, off)
	}
	b := im.pctab[off:]
	var out Values
	pc, value := f.Entry, int32(-1)
	for first := true; ; first = false {
		d, n := uvarint32(b)
		if n == 0 {
			return nil, fmt.Errorf("%s: table at offset %#x is cut off", f.Name, off)
		}
		if b = b[n:]; d == 0 && !first {
			return out, nil
		}
		step, n := uvarint32(b)
		if n == 0 {
			return nil, fmt.Errorf("%s: table at offset %#x is cut off", f.Name, off)
		}
		b = b[n:]
		value += int32(d>>1) ^ -int32(d&1)
		pc += uint64(step) * im.Quantum()
		if pc > f.Next {
			return nil, fmt.Errorf("%s: table at offset %#x goes on behind the function", f.Name, off)
		}
		out = append(out, valueRow{pc, value})
	}
}

// Quantum is what addresses of instructions, and so the tables' differences of them, are multiples of.
func (im *Image) Quantum() uint64 {
	if im.machine == elf.EM_AARCH64 {
		return arm64.InstLen
	}
	return 1
}

// uvarint32 decodes a varint and returns its length, 0: it is malformed.
func uvarint32(b []byte) (v uint32, n int) {
	for shift := 0; shift < 35 && n < len(b); shift += 7 {
		c := b[n]
		n++
		v |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return v, n
		}
	}
	return 0, 0
}

// NoFuncData is the offset of function data that a function does not have.
const NoFuncData = math.MaxUint32

// FuncData returns the offset of function data i of a record.
func FuncData(rec []byte, i int) uint32 {
	if i >= int(rec[RecNFuncData]) {
		return NoFuncData
	}
	return le.Uint32(rec[len(rec)-4*int(rec[RecNFuncData])+4*i:])
}

// GoFuncData returns n bytes of a function's data, which is at an offset, from another offset on. It is read-only.
func (im *Image) GoFuncData(off uint32, from, n int) ([]byte, error) {
	if im.GoFunc == 0 {
		return nil, errors.New("where functions have their data is not known")
	}
	return im.f.Bytes(im.GoFunc+uint64(off)+uint64(from), n)
}

// PCData returns the offset of table i of a record, 0: it has none.
func PCData(rec []byte, i int) uint32 {
	if n := le.Uint32(rec[RecNPCData:]); n > math.MaxInt32 || i >= int(n) {
		return 0
	}
	return le.Uint32(rec[RecSize+4*i:])
}
