//go:build linux

package places

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// The first place that is allowed is taken, each is asked once, and the sentence says why it is no earlier one.
func TestFile(t *testing.T) {
	all := []Place{Beside, Memory, Temporary}
	why := [count]error{errors.New("read-only"), errors.New("no memory files"), errors.New("noexec")}
	for _, tt := range []struct {
		name    string
		refused []Place
		order   []Place
		want    string // of the sentence, or the error
		asked   int
	}{
		{"beside", nil, all, "a file without a name in /dir", 1},
		{"memory", []Place{Beside}, all, "memory, because read-only", 2},
		{"temporary", []Place{Beside, Memory}, all, "a file without a name in /tmp, because read-only; no memory files", 3},
		{"nowhere", all, all, "there is no place for a patched copy, because read-only; no memory files; noexec", 3},
		{"not beside", nil, all[1:], "memory", 1},
		{"only temporary", []Place{Memory}, all[1:], "a file without a name in /tmp, because no memory files", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("TMPDIR", "/tmp")
			p, asked := Of("/dir"), 0
			for at := range p.make {
				p.make[at] = func(string) (*os.File, error) {
					asked++
					for _, r := range tt.refused {
						if r == Place(at) {
							return nil, why[at]
						}
					}
					return os.Open(os.DevNull)
				}
			}
			for again := range 3 {
				f, where, err := p.File("name", tt.order...)
				if err != nil {
					where = err.Error()
				} else {
					f.Close()
				}
				if where != tt.want {
					t.Errorf("%q, want %q", where, tt.want)
				}
				want := tt.asked
				if len(tt.refused) < len(tt.order) {
					want += again // those files are made anew
				}
				if asked != want {
					t.Errorf("time %d: asked %d times in all, want %d", again, asked, want)
				}
			}
		})
	}
}

// Places of this machine.
func TestPlaces(t *testing.T) {
	p := Of(t.TempDir())
	for _, at := range []Place{Beside, Temporary} {
		if f, where, err := p.File("name", at); err != nil {
			t.Logf("no copies in %s here: %v", p.name(at), err) // mounted noexec
		} else if f.Close(); !strings.HasPrefix(where, "a file without a name in ") {
			t.Errorf("place %d is called %q", at, where)
		}
	}
	_, _, err := Of("/nonexistent").File("name", Beside)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}
