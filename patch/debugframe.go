package patch

import (
	"bytes"
	"compress/zlib"
	"debug/elf"

	"github.com/fentry-dev/fentry/elfio/inject"
)

// What only debuggers read.
//
// Debuggers read .eh_frame by its name, and so find neither the entries of what is added nor the copies of those that had
// to move. They get them as .debug_frame, which is in the file only, and compressed as other sections for debuggers are:
// addresses that grow by the same number from entry to entry take next to nothing.

// debugFrame is the section for debuggers, compressed if it becomes smaller so.
func debugFrame(data []byte) inject.Section {
	const align = 8
	s := inject.Section{Name: ".debug_frame", Type: elf.SHT_PROGBITS, Data: data, Align: align}
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
