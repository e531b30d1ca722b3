package cost

import (
	"fmt"
	"testing"
)

// failures takes what a test is told.
type failures struct {
	testing.TB
	said []string
}

func (f *failures) Helper() {}

func (f *failures) Errorf(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

var kept []byte

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		bytes int
		fails bool
	}{{0, false}, {1 << 20, false}, {fixed / 2, false}, {2*fixed + 1000*100, true}} {
		f := &failures{TB: t}
		Check(f, 1000, 100, func() { kept = make([]byte, tt.bytes) })
		if (len(f.said) > 0) != tt.fails {
			t.Errorf("%d bytes: %q", tt.bytes, f.said)
		}
	}
}
