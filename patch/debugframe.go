package patch

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"slices"

	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/elfio/inject"
	"github.com/fentry-dev/fentry/symbol"
)

// What only debuggers read.
//
// Debuggers read .eh_frame by its name, and so find neither the entries of what is added nor the copies of those that had
// to move. They get them as .debug_frame, which is in the file only, and compressed as other sections for debuggers are:
// addresses that grow by the same number from entry to entry take next to nothing.
//
// An image can have a .debug_frame of its own, for functions that .eh_frame says nothing of (-fno-asynchronous-unwind-tables).
// Debuggers read one section of the name, so the image's entries are put in it, too, with the rule that looks behind thunks.

// ownDebugFrame appends the entries of the image's .debug_frame. One that cannot be read or copied is of no use to
// debuggers either, and is left out.
func (l *layout) ownDebugFrame(debug []byte) []byte {
	f := l.p.file
	data, err := symbol.DebugSection(f, "frame")
	if err != nil || len(data) == 0 {
		return debug
	}
	table, err := ehframe.ParseDebugFrame(f, data)
	if err != nil {
		return debug
	}
	var rules ehframe.Rules
	if l.p.flavour().hides() {
		rules = l.p.m.callers()
		exceptReaders(&rules, l.readers())
	}
	all := ehframe.Moved{DebugFrame: slices.Clip(debug)}
	if all.Append(f, 0, uint64(len(debug)), table.All(), rules) != nil {
		return debug
	}
	return all.DebugFrame
}

// debugFrame is the section for debuggers, compressed if it becomes smaller so.
func debugFrame(data []byte) inject.Section {
	const align = 8
	s := inject.Section{Name: ".debug_frame", Type: elf.SHT_PROGBITS, Data: data, Align: align, Replace: true}
	// Elf64_Chdr (gABI, "Section Compression"): type, reserved, size and alignment of what is compressed.
	b := le.AppendUint32(nil, uint32(elf.COMPRESS_ZLIB))
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, uint64(len(data)))
	z := bytes.NewBuffer(le.AppendUint64(b, align))
	w := zlib.NewWriter(z)
	_, err := w.Write(data)
	if err == nil {
		err = w.Close()
	}
	if err == nil && z.Len() < len(data) {
		s.Flags, s.Data = elf.SHF_COMPRESSED, z.Bytes()
	}
	s.Size = uint64(len(s.Data))
	return s
}
