package symbol

import (
	"bytes"
	"compress/zlib"
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
)

// compressZSTD is ELFCOMPRESS_ZSTD (gABI, "Section Compression"); debug/elf lacks it in older releases.
const compressZSTD = 2

// maxExpansion is more than zlib and zstd in practice make of a byte: zlib's limit is 1032. A header that promises more
// is refused before memory is taken.
const maxExpansion = 4096

// DebugSection returns the contents of .debug_NAME, expanded, nil when the file has none. It may be stored with
// SHF_COMPRESSED or, as older tools did, under the name .zdebug_NAME.
func DebugSection(f *elfio.File, name string) ([]byte, error) {
	if i := f.SectionIndex(".debug_" + name); i >= 0 {
		b, err := f.SectionData(i)
		if err != nil || f.Sections[i].Flags&elf.SHF_COMPRESSED == 0 {
			return b, err
		}
		if b, err = expandSection(f, b); err != nil {
			return nil, fmt.Errorf("section %d (.debug_%s) at offset %#x: %w", i, name, f.Sections[i].Off, err)
		}
		return b, nil
	}
	if i := f.SectionIndex(".zdebug_" + name); i >= 0 {
		b, err := f.SectionData(i)
		if err != nil {
			return nil, err
		}
		// "ZLIB" and the size as a big-endian number stand before the stream.
		if len(b) < 12 || string(b[:4]) != "ZLIB" {
			return b, nil
		}
		if b, err = expand(elf.COMPRESS_ZLIB, b[12:], binary.BigEndian.Uint64(b[4:])); err != nil {
			return nil, fmt.Errorf("section %d (.zdebug_%s) at offset %#x: %w", i, name, f.Sections[i].Off, err)
		}
		return b, nil
	}
	return nil, nil
}

// expandSection expands what follows a compression header: Elf64_Chdr {type, reserved, size, align} or Elf32_Chdr
// {type, size, align}.
func expandSection(f *elfio.File, b []byte) ([]byte, error) {
	o := f.Order()
	if f.Is64() {
		if len(b) < 24 {
			return nil, fmt.Errorf("compression header cut off")
		}
		return expand(elf.CompressionType(o.Uint32(b)), b[24:], o.Uint64(b[8:]))
	}
	if len(b) < 12 {
		return nil, fmt.Errorf("compression header cut off")
	}
	return expand(elf.CompressionType(o.Uint32(b)), b[12:], uint64(o.Uint32(b[4:])))
}

func expand(how elf.CompressionType, b []byte, size uint64) ([]byte, error) {
	if size > uint64(len(b))*maxExpansion {
		return nil, fmt.Errorf("%d compressed bytes cannot hold %d", len(b), size)
	}
	var r io.Reader
	switch how {
	case elf.COMPRESS_ZLIB:
		z, err := zlib.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		r = z
	case compressZSTD:
		z, err := zstdReader(b, size)
		if err != nil {
			return nil, err
		}
		r = z
	default:
		return nil, fmt.Errorf("unknown compression %d", how)
	}
	// Read by what really comes, not by what the header says.
	var out bytes.Buffer
	if n, err := io.Copy(&out, io.LimitReader(r, int64(size))); err != nil || uint64(n) != size {
		return nil, fmt.Errorf("%d of %d bytes expanded: %w", n, size, orEOF(err))
	}
	return out.Bytes(), nil
}

// zstdReader expands a zstd stream. The standard library has a reader that only debug/elf can use, so b is given to
// that as a file of one compressed section. The tables of other libraries' readers would be made at every start of
// every command.
func zstdReader(b []byte, size uint64) (io.Reader, error) {
	const ehdr, shdr, chdr = 64, 64, 24
	const at = ehdr + 2*shdr
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	file := bytes.NewBuffer(make([]byte, 0, at+chdr+len(b)))
	for _, part := range []any{
		elf.Header64{
			Ident: ident, Type: uint16(elf.ET_REL), Version: uint32(elf.EV_CURRENT),
			Shoff: ehdr, Ehsize: ehdr, Shentsize: shdr, Shnum: 2,
		},
		elf.Section64{},
		elf.Section64{
			Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_COMPRESSED), Off: at, Size: chdr + uint64(len(b)),
		},
		elf.Chdr64{Type: compressZSTD, Size: size},
	} {
		if err := binary.Write(file, binary.LittleEndian, part); err != nil {
			return nil, err
		}
	}
	file.Write(b)
	f, err := elf.NewFile(bytes.NewReader(file.Bytes()))
	if err != nil {
		return nil, err
	}
	return f.Sections[1].Open(), nil
}

func orEOF(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// loadDWARF takes the debug information of a file that has line tables; otherwise it returns nil.
func loadDWARF(f *elfio.File) (d *dwarf.Data, info, line []byte, err error) {
	sec := make(map[string][]byte)
	names := []string{"abbrev", "info", "line", "ranges", "str", "addr", "line_str", "str_offsets", "rnglists"}
	for _, name := range names {
		if sec[name], err = DebugSection(f, name); err != nil {
			return nil, nil, nil, err
		}
		if name == "line" && (len(sec["info"]) == 0 || len(sec["line"]) == 0) {
			return nil, nil, nil, nil
		}
	}
	d, err = dwarf.New(sec["abbrev"], nil, nil, sec["info"], sec["line"], nil, sec["ranges"], sec["str"])
	if err != nil {
		return nil, nil, nil, err
	}
	for _, name := range names[5:] { // DWARF 5
		if sec[name] == nil {
			continue
		}
		if err := d.AddSection(".debug_"+name, sec[name]); err != nil {
			return nil, nil, nil, err
		}
	}
	return d, sec["info"], sec["line"], nil
}

// hasDWARF reports whether a file has debug information of its own.
func hasDWARF(f *elfio.File) bool {
	for i := range f.Sections {
		s := &f.Sections[i]
		if n := strings.TrimPrefix(s.Name, ".z"); (n == "debug_info" || n == ".debug_info") && s.Type != elf.SHT_NOBITS {
			return true
		}
	}
	return false
}
