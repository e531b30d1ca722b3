package cache

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func openIn(t *testing.T, base string) *Cache {
	t.Helper()
	c, err := OpenIn(base)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func put(t *testing.T, c *Cache, key, text string) string {
	t.Helper()
	f, err := c.Put("kind", key, "/usr/lib/libx.so.1", len(text), func(f *os.File) error {
		_, err := f.WriteString(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil || string(b) != text {
		t.Fatalf("%q, %v", b, err)
	}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func get(c *Cache, key string) (text string, about int, err error) {
	f, err := c.Get("kind", key, &about)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), about, err
}

// What is put into the cache is found by its key, by others too, under its own name; an entry can be without a file.
func TestCache(t *testing.T) {
	base := t.TempDir()
	c, key := openIn(t, base), Key("a", "b")
	if _, _, err := get(c, key); !errors.Is(err, ErrNone) {
		t.Errorf("%v", err)
	}
	if got, want := put(t, c, key, "contents"), filepath.Join(base, "fentry/kind", key, "libx.so.1"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, c := range []*Cache{c, openIn(t, base)} {
		if text, about, err := get(c, key); text != "contents" || about != 8 || err != nil {
			t.Errorf("%q, %d, %v", text, about, err)
		}
	}
	none := Key("none")
	if f, err := c.Put("kind", none, "", "why", nil); f != nil || err != nil {
		t.Errorf("%v, %v", f, err)
	}
	var why string
	if f, err := c.Get("kind", none, &why); f != nil || err != nil || why != "why" {
		t.Errorf("%v, %v, %q", f, err, why)
	}
	failed := errors.New("failed")
	if _, err := c.Put("kind", Key("c"), "x", 1, func(*os.File) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	if list, err := os.ReadDir(filepath.Join(base, "fentry/kind")); err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	if Key("a", "b") == Key("ab") || Key("a", "b") != key {
		t.Error("keys")
	}
}

// A cache that cannot be used finds nothing and keeps nothing.
func TestNoCache(t *testing.T) {
	var c *Cache
	if _, _, err := get(c, Key()); !errors.Is(err, ErrNone) {
		t.Errorf("%v", err)
	}
	if _, err := c.Put("kind", Key(), "x", 0, nil); !errors.Is(err, ErrNone) {
		t.Errorf("%v", err)
	}
	if c.Executes() || c.Trim("kind", 0) != nil || c.Close() != nil {
		t.Error("not nothing")
	}
}

// Nothing is believed that somebody else can have made or changed, or that a crash has cut short.
func TestDistrust(t *testing.T) {
	key := Key("x")
	for name, spoil := range map[string]func(root, entry string) error{
		"mode of the cache":   func(root, _ string) error { return os.Chmod(root, 0o777) },
		"mode of the kind":    func(root, _ string) error { return os.Chmod(filepath.Join(root, "kind"), 0o770) },
		"mode of the entry":   func(_, entry string) error { return os.Chmod(entry, 0o702) },
		"mode of the file":    func(_, entry string) error { return os.Chmod(filepath.Join(entry, "libx.so.1"), 0o606) },
		"another user's":      func(_, entry string) error { return os.Lchown(entry, 12345, -1) },
		"another user's file": func(_, entry string) error { return os.Lchown(filepath.Join(entry, "libx.so.1"), 12345, -1) },
		"cut short":           func(_, entry string) error { return os.Truncate(filepath.Join(entry, "libx.so.1"), 3) },
		"no note":             func(_, entry string) error { return os.Remove(filepath.Join(entry, ".info")) },
		"half a note":         func(_, entry string) error { return os.Truncate(filepath.Join(entry, ".info"), 5) },
		"link to an entry": func(_, entry string) error {
			return errors.Join(os.Rename(entry, entry+"x"), os.Symlink(entry+"x", entry))
		},
		"link to a file": func(_, entry string) error {
			f := filepath.Join(entry, "libx.so.1")
			return errors.Join(os.Rename(f, f+"x"), os.Symlink(f+"x", f))
		},
		"pipe": func(_, entry string) error {
			f := filepath.Join(entry, "libx.so.1")
			return errors.Join(os.Remove(f), unix.Mkfifo(f, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			put(t, openIn(t, base), key, "contents")
			root := filepath.Join(base, "fentry")
			if err := spoil(root, filepath.Join(root, "kind", key)); errors.Is(err, unix.EPERM) {
				t.Skip("needs root: changes owners")
			} else if err != nil {
				t.Fatal(err)
			}
			c, err := OpenIn(base)
			if err == nil {
				defer c.Close()
				_, _, err = get(c, key)
			}
			if err == nil {
				t.Error("believed")
			}
		})
	}
}

// The directory of all caches is made, but not a home directory for it.
func TestNoHome(t *testing.T) {
	home := filepath.Join(t.TempDir(), "none")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", home)
	if c, err := Open(); err == nil {
		c.Close()
		t.Error("opened")
	}
	if _, err := os.Stat(home); err == nil {
		t.Error("a home directory was made")
	}
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if st, err := os.Stat(filepath.Join(home, ".cache/fentry")); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st, err)
	}
}

// In another user's directory nothing is made, but a cache of this user's can be there.
func TestForeignBase(t *testing.T) {
	base := t.TempDir()
	if err := os.Chmod(base, 0o777); err != nil {
		t.Fatal(err)
	}
	if c, err := OpenIn(base); err == nil {
		c.Close()
		t.Error("made where others can rename")
	}
	if err := os.Mkdir(filepath.Join(base, "fentry"), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, openIn(t, base), Key("x"), "contents")
	if err := errors.Join(os.RemoveAll(filepath.Join(base, "fentry")), os.Symlink(t.TempDir(), filepath.Join(base, "fentry"))); err != nil {
		t.Fatal(err)
	}
	if c, err := OpenIn(base); err == nil {
		c.Close()
		t.Error("a link was followed")
	}
}

// What was not used for the longest time goes first; files that are open stay usable, and what others have put there
// is left alone.
func TestTrim(t *testing.T) {
	base := t.TempDir()
	c := openIn(t, base)
	kind := filepath.Join(base, "fentry/kind")
	keys := []string{Key("0"), Key("1"), Key("2"), Key("3")}
	text := string(make([]byte, 100<<10))
	for i, k := range keys {
		put(t, c, k, text)
		old := time.Now().Add(-time.Duration(10-i) * 24 * time.Hour)
		if err := os.Chtimes(filepath.Join(kind, k), old, old); err != nil {
			t.Fatal(err)
		}
	}
	var about int
	first, err := c.Get("kind", keys[0], &about) // used now
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := os.Open(filepath.Join(kind, keys[1], "libx.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	long := time.Now().Add(-24 * time.Hour)
	for _, name := range []string{".new-young", ".new-old", "mine"} {
		if err := os.Mkdir(filepath.Join(kind, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(kind, ".new-old"), long, long); err != nil {
		t.Fatal(err)
	}
	if err := c.Trim("kind", 250<<10); err != nil {
		t.Fatal(err)
	}
	for i, k := range keys {
		_, _, err := get(c, k)
		if there := i == 0 || i == 3; there != (err == nil) {
			t.Errorf("%d: %v", i, err)
		}
	}
	for name, there := range map[string]bool{".new-young": true, ".new-old": false, "mine": true} {
		if _, err := os.Stat(filepath.Join(kind, name)); there != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b, err := io.ReadAll(second); err != nil || len(b) != len(text) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// Entries can be made, used and removed by several at once.
func TestConcurrent(t *testing.T) {
	base := t.TempDir()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			c, err := OpenIn(base)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for i := range 40 {
				key := Key(strconv.Itoa(i % 4))
				f, err := c.Put("kind", key, "name", 1, func(f *os.File) error {
					_, err := f.WriteString("contents")
					return err
				})
				if err == nil {
					b, err := io.ReadAll(f)
					f.Close()
					if err != nil || string(b) != "contents" {
						t.Errorf("%q, %v", b, err)
					}
				} else if !errors.Is(err, ErrNone) && !errors.Is(err, unix.ENOENT) {
					t.Error(err) // else removed meanwhile
				}
				if text, _, err := get(c, key); err == nil && text != "contents" {
					t.Errorf("%q", text)
				}
				if i%10 == 9 {
					if err := c.Trim("kind", 0); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}

// FuzzInfo: whatever is in an entry's note, it is an entry or not, and only the entry's own files are opened.
func FuzzInfo(f *testing.F) {
	f.Add([]byte(`{"Name":"libx.so.1","Size":8,"Info":8}`))
	f.Add([]byte(`{"Name":"../../x","Size":8,"Info":8}`))
	f.Add([]byte(`{"Name":".info","Size":38,"Info":8}`))
	f.Fuzz(func(t *testing.T, note []byte) {
		base := t.TempDir()
		c := openIn(t, base)
		key := Key("x")
		put(t, c, key, "contents")
		if err := os.WriteFile(filepath.Join(base, "fentry/kind", key, ".info"), note, 0o600); err != nil {
			t.Fatal(err)
		}
		if text, _, err := get(c, key); err == nil && text != "contents" && text != "" && text != string(note) {
			t.Errorf("%q", text)
		}
	})
}

// What the system has lost of an entry when it crashed is noticed after its next start, and made once more.
func TestDamaged(t *testing.T) {
	base := t.TempDir()
	c, key := openIn(t, base), Key("a")
	for name, damage := range map[string]func(path string) error{
		"shorter":   func(path string) error { return os.Truncate(path, 3) },
		"gone":      os.Remove,
		"no info":   func(path string) error { return os.WriteFile(filepath.Join(filepath.Dir(path), infoFile), nil, 0o600) },
		"zeros":     func(path string) error { return os.WriteFile(path, make([]byte, len("contents")), 0o600) },
		"no damage": nil,
	} {
		t.Run(name, func(t *testing.T) {
			path := put(t, c, key, "contents")
			info := filepath.Join(filepath.Dir(path), infoFile)
			b, err := os.ReadFile(info)
			if err != nil {
				t.Fatal(err)
			}
			before := strings.Replace(string(b), boot(), "another", 1)
			if err := os.WriteFile(info, []byte(before), 0o600); err != nil || before == string(b) {
				t.Fatal(err)
			}
			if damage != nil {
				if err := damage(path); err != nil {
					t.Fatal(err)
				}
				if text, _, err := get(c, key); err == nil {
					t.Errorf("%q is found", text)
				}
				put(t, c, key, "contents")
			}
			if text, _, err := get(c, key); err != nil || text != "contents" {
				t.Errorf("%q, %v", text, err)
			}
			if now, err := os.ReadFile(info); err != nil || !strings.Contains(string(now), boot()) {
				t.Errorf("%q, %v", now, err)
			}
			c.Drop("kind", key)
		})
	}
}
