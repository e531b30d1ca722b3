package arch

import "fmt"

// Bytes is a Memory that consists of one run of bytes, such as a section's contents.
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
