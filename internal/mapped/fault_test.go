package mapped

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// torn maps a file of three pages, and truncates it to one.
func mapTorn(t *testing.T) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, bytes.Repeat([]byte{'x'}, 3*os.Getpagesize()), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := os.Truncate(path, int64(os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	return f
}

// What touches the missing pages, by instruction, in the runtime or in the kernel, fails with the file's name; also when
// the file is closed on the way, and on goroutines.
func TestGuard(t *testing.T) {
	for name, read := range map[string]func(f *File) error{
		"instruction": func(f *File) error { return fmt.Errorf("read %d", f.Data[2*os.Getpagesize()+7]) },
		"copy":        func(f *File) error { _ = bytes.Clone(f.Data); return nil },
		"search":      func(f *File) error { _ = bytes.IndexByte(f.Data, 'y'); return nil },
		"compare":     func(f *File) error { _ = bytes.Equal(f.Data, bytes.Repeat([]byte{'x'}, len(f.Data))); return nil },
		"append":      func(f *File) error { _ = append([]byte{1}, f.Data...); return nil },
		"string key":  func(f *File) error { m := map[string]int{string(f.Data): 1}; _ = m[string(f.Data)]; return nil },
		"closed":      func(f *File) error { defer f.Close(); _ = bytes.Clone(f.Data); return nil },
		"system call": func(f *File) error {
			r, w, err := os.Pipe()
			if err != nil {
				return err
			}
			defer r.Close()
			defer w.Close()
			_, err = w.Write(f.Data[2*os.Getpagesize():][:8])
			return err
		},
		"relay": func(f *File) error {
			var r Relay
			done := make(chan bool)
			go func() {
				defer close(done)
				r.Run(func() { _ = bytes.Clone(f.Data) })
			}()
			<-done
			if !r.Failed() {
				t.Error("a relay without a fault")
			}
			r.Raise()
			return nil
		},
		"inner Guard": func(f *File) error {
			err := Guard(func() error { _ = bytes.Clone(f.Data); return nil })
			return Named("another", err)
		},
	} {
		f := mapTorn(t)
		err := Guard(func() error { return read(f) })
		var fault *Fault
		if !errors.As(err, &fault) || fault.Path != f.Path || !strings.HasPrefix(err.Error(), f.Path+": truncated to ") {
			t.Errorf("%s: %v", name, err)
		}
		if f.Changed() == nil {
			t.Errorf("%s: not changed", name)
		}
		f.Close()
	}
}

// Other panics are not the file's fault.
func TestGuardOtherPanics(t *testing.T) {
	other, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(other)
	f := mapTorn(t)
	for name, do := range map[string]func(){
		"value": func() { panic("mistake") },
		"index": func() { _ = f.Data[:1][len(f.Path)] },
		"nil":   func() { _ = *(*int)(nil) },
		"other": func() { _ = bytes.IndexByte(other, 1) },
	} {
		func() {
			defer func() {
				if r := recover(); r == nil || AsFault(r) != nil {
					t.Errorf("%s: %v", name, r)
				}
			}()
			err := Guard(func() error { do(); return nil })
			t.Errorf("%s: %v", name, err)
		}()
	}
	want := errors.New("of its own")
	if err := Guard(func() error { return want }); err != want {
		t.Error(err)
	}
	if err := Guard(func() error { return unix.EACCES }); err != unix.EACCES {
		t.Error(err)
	}
}

// What is remembered of closed mappings is bounded, gone where another file is mapped, and gone when nobody can ask.
func TestMappings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	remembered := func() int {
		mappings.Lock()
		defer mappings.Unlock()
		return len(mappings.all)
	}
	before := remembered()
	openAndClose := func() {
		var open []*File
		for range 100 {
			f, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, f)
		}
		for _, f := range open {
			f.Close()
		}
	}
	Guard(func() error {
		openAndClose()
		if n := remembered() - before; n == 0 || n > keptClosed {
			t.Errorf("%d mappings are remembered below Guard", n)
		}
		return nil
	})
	if n := remembered(); n != before {
		t.Errorf("%d mappings are remembered that were closed below Guard", n-before)
	}
	openAndClose()
	if n := remembered(); n != before {
		t.Errorf("%d mappings are remembered that were closed outside", n-before)
	}
}
