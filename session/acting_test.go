//go:build linux

package session

import (
	"testing"

	"github.com/fentry-dev/fentry/trace"
)

// Where errno is in an image any of those says who ask for it: of a library's patched copy only who means its functions knows.
func TestErrnoOfAny(t *testing.T) {
	at := func(in trace.ImageID, distance int64) doing {
		return doing{setResults, "", &Doing{Errno: func(image trace.ImageID) (int64, error) {
			if image != in {
				return 0, nil
			}
			return distance, nil
		}}}
	}
	s := settings{doing: []doing{{setTrigger, "", &Doing{}}, at(1, 16), at(2, 24)}}
	for image, want := range map[trace.ImageID]int64{1: 16, 2: 24, 3: 0} {
		if got, err := s.errno(image); got != want || err != nil {
			t.Errorf("image %d: %d, %v; want %d", image, got, err, want)
		}
	}
}
