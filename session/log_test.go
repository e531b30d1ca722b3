//go:build linux

package session

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/fentry-dev/fentry/trace"
)

// However many messages of a kind there are, few are printed, and the others are counted.
func TestMessages(t *testing.T) {
	var said []string
	l := logger{print: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }}
	for i := range 29_443 {
		l.logf("%s: no symbols: %v", fmt.Sprint("image ", i), "forged")
	}
	l.logf("another")
	l.close()
	l.close()
	if len(said) != maxMessages+2 || said[0] != "image 0: no symbols: forged" || !slices.Contains(said, "another") ||
		said[len(said)-1] != fmt.Sprintf("%d more messages like these were not printed", 29_443-maxMessages) {
		t.Errorf("%d messages: %q", len(said), said)
	}
	none := logger{}
	none.logf("discarded")
	none.close()
}

// A program that forges images does not fill the recorder's memory with them.
func TestForgedImages(t *testing.T) {
	said := 0
	s := &session{images: map[trace.ImageID]trace.Image{}, log: logger{print: func(string, ...any) { said++ }}}
	s.imageOn = sync.NewCond(&s.imageMu)
	for i := range trace.ImageID(2 * maxImages) {
		s.sawImage(i+1, 0, nil)
	}
	s.log.close()
	if len(s.images) != maxImages || len(s.queue) != maxImages || len(s.res.Images) != maxImages || said != maxMessages+1 {
		t.Errorf("%d images, %d in the queue, %d messages", len(s.images), len(s.queue), said)
	}
}
