package arch

import "fmt"

// Reader holds bytes that can be compared. ReadAt reads all of p or fails.
type Reader interface {
	ReadAt(p []byte, addr uint64) error
}

// Memory holds the bytes that are verified and rewritten: an image being built, the address space of another process,
// or one's own. Both methods handle all of p or fail.
type Memory interface {
	Reader
	WriteAt(p []byte, addr uint64) error
}

// Moved is a Memory seen at other addresses: address A of Memory is A - Bias here. With the load bias of an image it
// takes link-time addresses.
type Moved struct {
	Memory
	Bias uint64
}

// ReadAt copies len(p) bytes from address addr.
func (m Moved) ReadAt(p []byte, addr uint64) error { return m.Memory.ReadAt(p, addr+m.Bias) }

// WriteAt copies p to address addr.
func (m Moved) WriteAt(p []byte, addr uint64) error { return m.Memory.WriteAt(p, addr+m.Bias) }

// Bytes is a Memory made of one run of bytes, such as the contents of a section.
type Bytes struct {
	Addr uint64 // of Data[0]
	Data []byte
}

// ReadAt copies len(p) bytes from address addr.
func (b Bytes) ReadAt(p []byte, addr uint64) error {
	s, err := b.at(addr, len(p))
	copy(p, s)
	return err
}

// WriteAt copies p to address addr.
func (b Bytes) WriteAt(p []byte, addr uint64) error {
	s, err := b.at(addr, len(p))
	copy(s, p)
	return err
}

func (b Bytes) at(addr uint64, n int) ([]byte, error) {
	off := addr - b.Addr
	if size := uint64(len(b.Data)); off > size || uint64(n) > size-off {
		return nil, fmt.Errorf("%d bytes at %#x are not within %#x to %#x", n, addr, b.Addr, b.Addr+size)
	}
	return b.Data[off : off+uint64(n)], nil
}
