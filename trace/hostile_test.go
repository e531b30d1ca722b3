package trace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Whatever lies in a trace directory under the name of one of its files, opening the trace does not wait, and does not
// follow it to a file somewhere else: what is not a regular file is as if it were damaged.
func TestHostileFiles(t *testing.T) {
	const sym = "00000000000000aa" + SymExt
	image := append(appendChunkHeader(nil, ChunkImage, TaskID{PID: 1, TID: 1, Image: 0xaa}, 0, 0, 0), "path=/x\x00nsites=1\x00"...)
	events := append(AppendHeader(nil, Header{Layout: LayoutPacked, ChunkSize: 4096}), Sealed(append(image, 0, 0, 0, 0))...)
	kinds := map[string]func(path string) error{
		"fifo":        func(p string) error { return unix.Mkfifo(p, 0o666) },
		"socket":      func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o666, 0) },
		"directory":   func(p string) error { return os.Mkdir(p, 0o777) },
		"link":        func(p string) error { return os.Symlink("/etc/passwd", p) },
		"to-terminal": func(p string) error { return os.Symlink("/dev/tty", p) },
		"loop":        func(p string) error { return os.Symlink(filepath.Base(p), p) },
	}
	for kind, put := range kinds {
		for _, name := range []string{EventsFile, InfoFile, ChunksFile, sym} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, EventsFile), events, 0o666); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, name)
			os.Remove(path)
			if err := put(path); err != nil {
				t.Fatal(err)
			}
			type result struct {
				tr  *Trace
				err error
			}
			done := make(chan result, 1)
			go func() { tr, err := Open(dir); done <- result{tr, err} }()
			var r result
			select {
			case r = <-done:
			case <-time.After(time.Minute):
				t.Fatalf("%s as %s: waits", name, kind)
			}
			said := ""
			if name == EventsFile {
				if r.err == nil {
					t.Fatalf("%s as %s: opened", name, kind)
				}
				said = r.err.Error()
			} else {
				if r.err != nil || len(r.tr.Images) != 1 {
					t.Fatalf("%s as %s: %v", name, kind, r.err)
				}
				for _, p := range r.tr.Problems {
					said += p.Error() + "\n"
				}
				r.tr.Close()
			}
			if !strings.Contains(said, path+": ") ||
				!strings.Contains(said, "not a regular file") && !strings.Contains(said, "a symbolic link") {
				t.Errorf("%s as %s: %q", name, kind, said)
			}
		}
	}
}
