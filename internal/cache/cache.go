// Package cache keeps files that take long to make and can be made again at any time.
//
// They are in the directory fentry below $XDG_CACHE_HOME, or ~/.cache. An entry is found by a kind and a key, which says
// everything that the contents depend on, so what is found is never out of date. Entries come into being whole, by one
// rename, and are never changed; they may be removed at any time, by anybody, as who has found one has its file open.
//
// # Security
//
// What is in an entry is executed by the programs that are given it, so an entry is believed only if nobody else can
// have made it: directories and files belong to this user, others may not write to them, and no symbolic link below the
// directory is followed. Where it belongs to somebody else, as for root with the environment of another user, there is
// no cache.
package cache

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/safefile"
)

// ErrNone is returned for an entry that is not there.
var ErrNone = errors.New("not in the cache")

// A Cache is a directory of entries. Methods of a nil Cache find nothing and keep nothing. It is safe for concurrent
// use, by other processes, too.
type Cache struct {
	root *safefile.Dir
}

// Open opens the cache of this user, which is made if it is not there.
func Open() (*Cache, error) {
	base := os.Getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(base) { // as the specification of the variable asks for
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, fmt.Errorf("cache: %w", err)
		}
		base = filepath.Join(home, ".cache")
	}
	return OpenIn(base)
}

// OpenIn is [Open] for the directory fentry in base.
func OpenIn(base string) (*Cache, error) {
	// Not the directories above: without a home directory there is no cache, and none is made.
	if err := os.Mkdir(base, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("cache: %w", err)
	}
	above, err := safefile.OpenDir(base)
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	defer above.Close()
	// Nothing is made in another user's directory, who could not use it then.
	ours := above.Ours()
	root, err := open(above, "fentry", ours == nil)
	if errors.Is(err, unix.ENOENT) && ours != nil {
		err = ours
	}
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	return &Cache{root}, nil
}

// open opens a directory in another one, if it can be trusted.
func open(in *safefile.Dir, name string, create bool) (*safefile.Dir, error) {
	if create {
		made, err := in.Mkdir(name)
		if err == nil {
			return made, nil
		}
		if !errors.Is(err, unix.EEXIST) {
			return nil, err
		}
	}
	d, err := in.OpenDir(name)
	if err != nil {
		return nil, err
	}
	if err := d.Ours(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Close closes the cache. Files of entries stay open.
func (c *Cache) Close() error {
	if c == nil {
		return nil
	}
	return c.root.Close()
}

// Executes reports whether files of the cache can be mapped as code.
func (c *Cache) Executes() bool {
	var fs unix.Statfs_t
	return c != nil && unix.Statfs(fmt.Sprintf("/proc/self/fd/%d", c.root.Fd()), &fs) == nil && fs.Flags&unix.ST_NOEXEC == 0
}

// Key returns a key for what depends on all of parts.
func Key(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Names of an entry's files and of directories that are to become entries.
const (
	infoFile = ".info"
	unborn   = ".new-"
)

// maxInfo bounds what is kept beside an entry's file, in bytes.
const maxInfo = 1 << 20

// info is the contents of infoFile.
type info struct {
	Name string // of the entry's file; "": it has none
	// Size in bytes of the file, a sum of what is in it, and the boot since which that is known to be there: after a crash of the
	// system a file can be shorter than what was written, or have zeros.
	Size int64
	Sum  uint32
	Boot string
	Info json.RawMessage
}

// boot identifies the time since the system was started; "": that is not known, and nothing is believed without a look.
var boot = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
})

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumOf is a sum of what is in a file.
func sumOf(f *os.File) (uint32, error) {
	h := crc32.New(castagnoli)
	_, err := io.Copy(h, io.NewSectionReader(f, 0, 1<<62))
	return h.Sum32(), err
}

// touchAfter is how old the note may be that an entry was used.
const touchAfter = time.Hour

// Get looks an entry up. It fills in what was kept beside the file, and returns the file, open for reading; nil: the
// entry has none. The error is [ErrNone] if there is no entry that can be believed.
func (c *Cache) Get(kind, key string, about any) (*os.File, error) {
	if c == nil {
		return nil, ErrNone
	}
	k, err := open(c.root, kind, false)
	if err != nil {
		return nil, ErrNone
	}
	defer k.Close()
	e, err := open(k, key, false)
	if err != nil {
		return nil, ErrNone
	}
	defer e.Close()
	b, err := e.ReadFile(infoFile, maxInfo)
	var in info
	if err != nil || json.Unmarshal(b, &in) != nil || json.Unmarshal(in.Info, about) != nil {
		return nil, ErrNone
	}
	if st, err := e.Stat(); err == nil && time.Since(time.Unix(st.Mtim.Unix())) > touchAfter {
		now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
		_ = unix.UtimesNanoAt(k.Fd(), key, now, unix.AT_SYMLINK_NOFOLLOW) // it is used only to choose what goes first
	}
	if in.Name == "" {
		return nil, nil
	}
	f, err := e.Open(in.Name)
	if err != nil {
		return nil, ErrNone
	}
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 || st.Size != in.Size || !in.whole(e, f) {
		f.Close()
		return nil, ErrNone
	}
	return f, nil
}

// whole tells whether what is in an entry's file is what was written. It is looked at once after each start of the system.
func (in *info) whole(e *safefile.Dir, f *os.File) bool {
	if in.Boot == boot() && in.Boot != "" {
		return true
	}
	if sum, err := sumOf(f); err != nil || sum != in.Sum {
		return false
	}
	in.Boot = boot()
	temp := infoFile + rand.Text()
	if in.write(e, temp) != nil || e.Rename(temp, infoFile) != nil { // it is looked at again the next time
		_ = e.Remove(temp)
	}
	return true
}

// write writes what is kept beside an entry's file.
func (in *info) write(e *safefile.Dir, name string) error {
	b, err := json.Marshal(in)
	if err != nil {
		return err
	}
	w, err := e.Create(name, os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return errors.Join(err, w.Close())
}

// Put makes an entry: write writes its file, which is called name; write nil: it has none. about is kept beside it, as
// JSON. Put returns the file, open for reading. An entry that is there already, made by another process meanwhile, stays.
func (c *Cache) Put(kind, key, name string, about any, write func(*os.File) error) (*os.File, error) {
	if c == nil {
		return nil, ErrNone
	}
	k, err := open(c.root, kind, true)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	temp := unborn + rand.Text()
	e, err := k.Mkdir(temp)
	if err != nil {
		return nil, err
	}
	f, err := fill(e, name, about, write)
	if err != nil {
		remove(k, e, temp)
		return nil, err
	}
	for try := 0; ; try++ {
		if err = k.Rename(temp, key); err == nil {
			e.Close()
			return f, nil
		}
		if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
		if there, gerr := c.Get(kind, key, about); gerr == nil || try == putTries {
			remove(k, e, temp)
			f.Close() // perhaps nil
			return there, gerr
		}
		c.Drop(kind, key) // it is damaged
	}
	remove(k, e, temp)
	f.Close() // perhaps nil
	return nil, err
}

// putTries is how often a damaged entry is removed of which others make new ones meanwhile.
const putTries = 3

// Drop removes an entry whose contents turned out to be of no use.
func (c *Cache) Drop(kind, key string) {
	if c == nil {
		return
	}
	k, err := open(c.root, kind, false)
	if err != nil {
		return
	}
	defer k.Close()
	if e, err := open(k, key, false); err == nil {
		remove(k, e, key)
	}
}

// fill makes the files of an entry.
func fill(e *safefile.Dir, name string, about any, write func(*os.File) error) (*os.File, error) {
	raw, err := json.Marshal(about)
	if err != nil {
		return nil, err
	}
	in := info{Info: raw}
	var f *os.File
	if write != nil {
		in.Name = fileName(name)
		if f, in.Size, err = fillFile(e, in.Name, write); err != nil {
			return nil, err
		}
		if in.Sum, err = sumOf(f); err != nil {
			f.Close()
			return nil, err
		}
		in.Boot = boot()
	}
	if err := in.write(e, infoFile); err != nil {
		f.Close() // perhaps nil
		return nil, err
	}
	return f, nil
}

// fillFile writes the file of an entry, and opens it for reading.
func fillFile(e *safefile.Dir, name string, write func(*os.File) error) (*os.File, int64, error) {
	w, err := e.Create(name, os.O_RDWR)
	if err != nil {
		return nil, 0, err
	}
	defer w.Close()
	if err := write(w); err != nil {
		return nil, 0, err
	}
	st, err := w.Stat()
	if err != nil {
		return nil, 0, err
	}
	f, err := e.Open(name)
	return f, st.Size(), err
}

// fileName is what a file of the given name is called in an entry.
func fileName(name string) string {
	name = filepath.Base(name)
	if strings.HasPrefix(name, ".") || name == "/" {
		return "file"
	}
	return name
}

// remove removes a directory of the cache with its files.
func remove(k, e *safefile.Dir, name string) {
	defer e.Close()
	files, err := e.ReadDir(maxEntries)
	if err != nil {
		return
	}
	for _, f := range files {
		_ = e.Remove(f.Name())
	}
	_ = k.Rmdir(name) // what cannot be removed is tried again the next time
}
