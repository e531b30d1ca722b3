//go:build linux

package fentry

// Changed code of programs is kept.
//
// A program that is executed again and again, as compilers are, has its code changed each time: the kernel copies each page of it for
// the process, and once more what forks has. Where the plan is kept, so is a copy of the file in which that has been done, and
// it is mapped in place of the file's code. It is an ELF file with the same build-id and symbols, so profilers that look up the file
// of a mapping find what they look for. What is off for long is mapped from the program's own file again.

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/cache"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/patch"
)

const (
	// codeKind is the kind of the cache's entries that are copies of programs with changed code.
	codeKind = "code"
	// codeLimit is how many bytes they may take, and codeMost one of them.
	codeLimit, codeMost = 512 << 20, 256 << 20
	// codeFrom is how many pages of code are to be changed: of few it costs more to map a file. codePart is of how many of the
	// file's pages one is: a copy of a compiler takes a tenth of a second to write, and saves a microsecond for each of them.
	codeFrom, codePart = 64, 8
	pageSize           = 4096
)

// codeKey is the key of the copy of a plan, of which the key and [patch.KeptSum] are given. By the same key there is another plan
// once a file with more names has come, and the code of a copy leads to what its own plan adds.
func codeKey(key string, sum uint32) string {
	return cache.Key("code", key, strconv.FormatUint(uint64(sum), 16))
}

// old reports whether a file was not changed just now, whatever its file system notes of that.
func old(st *unix.Stat_t) bool {
	return time.Since(time.Unix(st.Ctim.Unix())) >= plansAge && time.Since(time.Unix(st.Mtim.Unix())) >= plansAge
}

// code has a plan use a copy of the program with the code changed, if there is one by a key or it can be made.
func (k *plans) code(key, path string, exe *os.File, st *unix.Stat_t, m *patch.Memory) {
	m.Code = k.codeFile(key, path, exe, st, m)
	m.CodeRX = patch.AddedAt(st.Size)
}

// codeFile is that copy; nil: there is none, and none could be made.
func (k *plans) codeFile(key, path string, exe *os.File, st *unix.Stat_t, m *patch.Memory) *os.File {
	if m.CodePages() < max(codeFrom, int(st.Size/pageSize/codePart)) || st.Size > codeMost || !old(st) || !k.cache.Executes() {
		return nil
	}
	var none struct{}
	if f, err := k.cache.Get(codeKind, key, &none); err == nil && f != nil {
		return f
	}
	k.cache.Drop(codeKind, key) // if there is one, it is damaged
	f, err := k.cache.Put(codeKind, key, filepath.Base(path), none, func(w *os.File) error {
		data, err := mapped.MapFD(int(exe.Fd()), path)
		if err != nil {
			return err
		}
		defer data.Close()
		return mapped.Guard(func() error {
			f, err := elfio.Parse(data.Data)
			if err != nil {
				return err
			}
			all, err := m.Whole()
			if err == nil {
				err = all.WriteCode(w, f, data.Data)
			}
			if err == nil {
				err = data.Changed()
			}
			return err
		})
	})
	if err != nil {
		return nil // it is changed in each process
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keptCode = true
	return f
}
