//go:build linux

// Package places knows where code can be put that a program is to run from a file: a patched copy of it, or of one of
// its libraries.
//
//	p := places.Of("/usr/bin")
//	f, where, err := p.File("ls", places.Beside, places.Memory, places.Temporary)
//
// A machine can refuse any place: a directory is read-only or its file system mounted noexec, vm.memfd_noexec forbids
// memory that can be executed, a filter of system calls refuses memfd_create. A Probe asks for each place once, when it
// is first wanted, and remembers a refusal. Asking is making the file: nothing else tells for certain, and where the
// first place will do, which is nearly everywhere, it costs nothing.
package places

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/memfile"
)

// Place is one where a file without a name can be that is to be executed.
type Place int

const (
	Beside    Place = iota // the probe's directory: that of the original, so that $ORIGIN in library paths stays right
	Memory                 // memfd_create
	Temporary              // $TMPDIR
	count
)

// A Probe is what a machine and a directory allow. Its methods are safe for concurrent use.
type Probe struct {
	dir     string
	make    [count]func(name string) (*os.File, error)
	mu      sync.Mutex
	refused [count]error // nil: allowed, or not asked yet
}

// Of returns the probe for copies of files in dir.
func Of(dir string) *Probe {
	return &Probe{dir: dir, make: [count]func(string) (*os.File, error){
		Beside:    func(string) (*os.File, error) { return nameless(dir) },
		Memory:    memfile.New,
		Temporary: func(string) (*os.File, error) { return nameless(os.TempDir()) },
	}}
}

// File makes an empty file in the first of the places that is allowed; if that is memory, it has a name there. where says which it is, and why it is no earlier
// one. An error names all reasons.
func (p *Probe) File(name string, order ...Place) (f *os.File, where string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var whys []error
	for _, at := range order {
		if p.refused[at] == nil {
			if f, p.refused[at] = p.make[at](name); p.refused[at] == nil {
				return f, p.name(at) + because(whys), nil
			}
		}
		whys = append(whys, p.refused[at])
	}
	return nil, "", &RefusedError{whys}
}

// RefusedError: all places were refused, each for a reason.
type RefusedError struct{ Whys []error }

func (e *RefusedError) Error() string {
	return "there is no place for a patched copy" + because(e.Whys)
}

func (e *RefusedError) Unwrap() []error { return e.Whys }

// name is what a place is called in a sentence.
func (p *Probe) name(at Place) string {
	switch at {
	case Beside:
		return "a file without a name in " + p.dir
	case Memory:
		return "memory"
	}
	return "a file without a name in " + os.TempDir()
}

// because gives the reasons why other places were refused.
func because(whys []error) string {
	s := ""
	for i, err := range whys {
		if i == 0 {
			s = ", because "
		} else {
			s += "; "
		}
		s += err.Error()
	}
	return s
}

// nameless makes a file without a name in a directory.
func nameless(dir string) (*os.File, error) {
	// Not every file system that can have such a file allows to execute it.
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) == nil && fs.Flags&unix.ST_NOEXEC != 0 {
		return nil, fmt.Errorf("%s is mounted noexec", dir)
	}
	return os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o600)
}
