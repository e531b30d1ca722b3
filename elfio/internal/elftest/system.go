package elftest

import (
	"debug/elf"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// systemDirs hold the ELF files of the machine.
var systemDirs = []string{"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec", "/usr/lib64", "/lib", "/lib64",
	"/usr/local", "/usr/aarch64-linux-gnu", "/usr/i686-linux-gnu"}

// SystemFiles calls visit for every ELF file of the machine, memory-mapped, on several goroutines. It
// stops after the time limit; FENTRY_WIDE=1 lifts that.
func SystemFiles(t *testing.T, limit time.Duration, visit func(path string, raw []byte)) (n int) {
	t.Helper()
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	deadline := time.Now().Add(limit)
	if testtool.Wide() {
		deadline = time.Now().Add(24 * time.Hour)
	}
	paths := make(chan string, 64)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for p := range paths {
				visitFile(p, visit)
			}
		})
	}
	for _, dir := range systemDirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			if time.Now().After(deadline) {
				return filepath.SkipAll
			}
			var st unix.Stat_t
			if unix.Stat(path, &st) != nil || seen[inode{st.Dev, st.Ino}] || st.Size < 52 {
				return nil
			}
			seen[inode{st.Dev, st.Ino}] = true
			if isELF(path) {
				n++
				paths <- path
			}
			return nil
		})
	}
	close(paths)
	wg.Wait()
	if time.Now().After(deadline) {
		t.Logf("stopped after %v", limit)
	}
	return n
}

func isELF(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var b [4]byte
	_, err = f.Read(b[:])
	return err == nil && string(b[:]) == elf.ELFMAG
}

func visitFile(path string, visit func(path string, raw []byte)) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return
	}
	raw, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return
	}
	visit(path, raw)
	_ = unix.Munmap(raw)
}
