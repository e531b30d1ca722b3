//go:build linux

package session

import (
	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/session/internal/drain"
)

// compress lets the drainer compress chunks. On a single processor there is none to spare while a program runs.
func (s *session) compress() (err error) {
	if s.o.Compress == CompressNone || s.o.Compress == CompressAuto && parallel.Processors() < 2 {
		return nil
	}
	s.drain.Compress, err = drain.NewCompressor(s.o.Compress == CompressAuto)
	return err
}
