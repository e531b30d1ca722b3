//go:build linux

package session

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/trace"
)

func (im Image) open() (*os.File, error) {
	if strings.HasPrefix(im.File, "/") {
		// The path is the process's, whose root need not be this one.
		if f, err := safefile.Open(fmt.Sprintf("/proc/%d/root%s", im.PID, im.File)); err == nil {
			return f, nil
		}
		return safefile.Open(im.File)
	}
	if im.exe != nil {
		if f, err := safefile.Open(fmt.Sprintf("/proc/self/fd/%d", im.exe.Fd())); err == nil {
			return f, nil
		}
	}
	if im.PID > 0 {
		link := fmt.Sprintf("/proc/%d/exe", im.PID)
		// The process can have gone on to another program since.
		if exe, err := os.Readlink(link); err == nil && (im.Exe == "" || exe == im.Exe) {
			if f, err := safefile.Open(link); err == nil {
				return f, nil
			}
		}
	}
	if im.Path == "" || !strings.HasPrefix(im.Path, "/") {
		if im.Exe != "" {
			return safefile.Open(im.Exe)
		}
	}
	return safefile.Open(im.Path)
}

// maxImages is how many images a session takes notice of. Only a program that forges them has more.
const maxImages = 1 << 16

// sawImage hands an image that was not seen before to symbols: payload is what its
// chunk says. What of that cannot be understood is left out; the symbols say it again.
func (s *session) sawImage(id trace.ImageID, pid int, payload []byte) {
	parsed, _ := trace.ParseImage(id, payload)
	im := Image{Image: parsed, PID: pid}
	s.imageMu.Lock()
	defer s.imageMu.Unlock()
	if _, ok := s.images[im.ID]; ok {
		s.come() // it may have been loaded again
		return
	}
	if len(s.images) >= maxImages {
		s.logf("image %v has no symbols: there are %d others", im.ID, maxImages)
		return
	}
	s.images[im.ID] = im.Image
	s.copyFrequency()
	s.res.Images = append(s.res.Images, im.Image)
	s.queue = append(s.queue, im)
	s.imageOn.Signal()
	s.come()
}

// nextImage waits for an image; ok is false when there will be no more.
func (s *session) nextImage() (im Image, ok bool) {
	s.imageMu.Lock()
	defer s.imageMu.Unlock()
	for len(s.queue) == 0 && !s.noMore {
		s.imageOn.Wait()
	}
	if len(s.queue) == 0 {
		return im, false
	}
	im, s.queue = s.queue[0], s.queue[1:]
	return im, true
}

// symbols writes the symbol files, away from the drainer: reading a program can
// take longer than filling the pool.
func (s *session) symbols() {
	for {
		im, ok := s.nextImage()
		if !ok {
			return
		}
		if s.o.Symbols == nil {
			s.named.Add(1)
			continue
		}
		if !s.foreign() { // else it is the emulator's
			im.exe = s.exes.take(im.ID)
		}
		err := s.writeSymbols(im)
		s.named.Add(1)
		select {
		case <-s.end.giveUp:
			return
		default:
		}
		if err != nil && !errors.Is(err, ErrNoSymbols) {
			s.logf("%s: no symbols: %v", im.Path, err)
		}
		if im.exe != nil {
			im.exe.Close()
		}
	}
}

// writeSymbols writes the symbol file of an image.
func (s *session) writeSymbols(im Image) error {
	s.symbolMu.Lock()
	defer s.symbolMu.Unlock()
	return s.dir.WriteSymbols(im.ID, func(w io.Writer) error { return s.o.Symbols(im, w) })
}

// renewSymbols writes those of an image again, of which there is more to say. One that is still to be written comes later.
func (s *session) renewSymbols(id trace.ImageID) error {
	s.imageMu.Lock()
	im, ok := s.images[id]
	s.imageMu.Unlock()
	if !ok || s.o.Symbols == nil {
		return nil
	}
	return s.writeSymbols(Image{Image: im})
}

// ErrNoSymbols is returned by Options.Symbols for an image that is to have no .sym file.
var ErrNoSymbols = errors.New("no symbols")
