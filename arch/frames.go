package arch

import "encoding/binary"

// A PCFDE says where in .eh_frame the frame description entry for a range of code is.
type PCFDE struct {
	PC   uint64 // first instruction
	Addr uint64 // of its frame description entry
}

// Frames is the unwind information of thunks: a CIE, or more of them, each followed by an FDE for each thunk or run of thunks.
type Frames struct {
	EhFrame    []byte  // valid only at the address it was made for; no terminator
	FDEs       []PCFDE // in the order they were added
	DebugFrame []byte  // the same rows for .debug_frame, with absolute addresses

	base      uint64 // of EhFrame
	eh, debug int    // where the CIE is that is added to
}

// frameAlign is what entries are padded to: addresses in .debug_frame have 8 bytes.
const frameAlign = 8

// NewFrames returns empty frames for an .eh_frame at address base. Column is the DWARF register number of the return
// address; start holds the call frame instructions that apply at the first instruction of every range of code.
func NewFrames(base uint64, column byte, start []byte) *Frames {
	f := &Frames{base: base}
	f.Begin(column, start)
	return f
}

// Begin begins another CIE, which what is added from now on belongs to.
func (f *Frames) Begin(column byte, start []byte) {
	le := binary.LittleEndian
	f.eh, f.debug = len(f.EhFrame), len(f.DebugFrame)
	// Both begin with the length and the id of a CIE, then the version.
	eh := append(le.AppendUint64(f.EhFrame, 0), 1, 'z', 'R', 0)
	df := append(le.AppendUint32(le.AppendUint32(f.DebugFrame, 0), ^uint32(0)), 1, 0)
	align := []byte{1, 0x78, column}           // code and data alignment (-8)
	eh = append(append(eh, align...), 1, 0x1b) // addresses are PC-relative, 4 bytes signed
	df = append(df, align...)
	f.EhFrame = FinishEntry(append(eh, start...), f.eh)
	f.DebugFrame = FinishEntry(append(df, start...), f.debug)
}

// Add adds an FDE with the given call frame instructions for the size bytes of code at pc.
func (f *Frames) Add(pc, size uint64, rules []byte) {
	le := binary.LittleEndian
	at := len(f.EhFrame)
	f.FDEs = append(f.FDEs, PCFDE{pc, f.base + uint64(at)})
	b := le.AppendUint32(f.EhFrame, 0)
	b = le.AppendUint32(b, uint32(at+4-f.eh)) // back to the CIE
	b = le.AppendUint32(b, uint32(pc-(f.base+uint64(at)+8)))
	b = le.AppendUint32(b, uint32(size))
	b = append(b, 0) // no augmentation data
	f.EhFrame = FinishEntry(append(b, rules...), at)

	at = len(f.DebugFrame)
	b = le.AppendUint32(f.DebugFrame, 0)
	b = le.AppendUint32(b, uint32(f.debug)) // where the CIE is
	b = le.AppendUint64(b, pc)
	b = le.AppendUint64(b, size)
	f.DebugFrame = FinishEntry(append(b, rules...), at)
}

// FinishEntry pads the CIE or FDE that starts at offset at of b to a multiple of 8 bytes and fills in its length.
func FinishEntry(b []byte, at int) []byte {
	for (len(b)-at)%frameAlign != 0 {
		b = append(b, 0) // DW_CFA_nop
	}
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}
