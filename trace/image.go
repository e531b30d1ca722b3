package trace

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/fentry-dev/fentry/internal/format"
)

// A FuncID names a function of a trace: the image's position in Trace.Images and the function's id in the image,
// which counts from 1. The zero FuncID means no function.
type FuncID struct {
	Image uint32
	ID    uint32
}

// ParseImage reads the key=value strings of an image chunk's payload. Unknown keys, which later writers may add, are
// skipped. The error is about the first malformed string; the image has what could be read.
func ParseImage(id ImageID, payload []byte) (Image, error) {
	im := Image{ID: id}
	var first error
	for off := 0; off < len(payload) && payload[off] != 0; {
		s, _, _ := bytes.Cut(payload[off:], []byte{0})
		if err := im.set(string(s)); err != nil && first == nil {
			first = fmt.Errorf("image chunk: offset %d: %w", off, err)
		}
		off += len(s) + 1
	}
	return im, first
}

// set takes one key=value string.
func (im *Image) set(s string) error {
	key, val, ok := strings.Cut(s, "=")
	if !ok {
		return errors.New("no key=value")
	}
	var err error
	switch key {
	case "path":
		im.Path = val
	case "machine":
		im.Machine = val
	case "build-id":
		im.BuildID = val
	case "bias":
		im.Bias, err = strconv.ParseUint(val, 0, 64)
	case "exe":
		im.Exe = val
	case "file":
		im.File = val
	case "home":
		var id uint64
		id, err = strconv.ParseUint(val, 16, 64)
		im.Home = ImageID(id)
	case "cmdline":
		im.Command = format.Arguments(val, "\x1f")
	case "ppid":
		im.Parent, err = strconv.Atoi(val)
	case "nsites":
		var n uint64
		if n, err = strconv.ParseUint(val, 0, 31); err == nil && n > format.IDMax {
			err = strconv.ErrRange
		}
		if err == nil {
			im.Sites = int(n)
		}
	case "mode":
		im.Mode = val
	case "clock":
		im.Clock = val
	case "stacks":
		im.Stacks = val
	case "park":
		im.Park, err = parseID(val)
	case "ready":
		im.Ready, err = parseID(val)
	case "ids":
		im.IDs = val
	case "plain":
		im.Plain = val == "1"
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// ClockNone is the Clock of an image whose events have sequence numbers in place of times.
const ClockNone = "none"

func parseID(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	return uint32(id), err
}

// merge takes from o what im does not know.
func (im *Image) merge(o *Image) {
	pick := func(a *string, b string) {
		if *a == "" {
			*a = b
		}
	}
	pick(&im.Path, o.Path)
	pick(&im.BuildID, o.BuildID)
	pick(&im.Machine, o.Machine)
	pick(&im.Exe, o.Exe)
	pick(&im.File, o.File)
	pick(&im.Mode, o.Mode)
	pick(&im.Clock, o.Clock)
	pick(&im.IDs, o.IDs)
	pick(&im.Stacks, o.Stacks)
	im.Plain = im.Plain || o.Plain
	if im.Park == 0 {
		im.Park, im.Ready = o.Park, o.Ready
	}
	if im.Sites == 0 {
		im.Sites = o.Sites
	}
	if im.Bias == 0 {
		im.Bias = o.Bias
	}
	if im.Command == nil {
		im.Command = o.Command
	}
}
