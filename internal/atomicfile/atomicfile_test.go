package atomicfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/atomicfile"
	"github.com/fentry-dev/fentry/internal/safefile"
)

func put(s string) func(*os.File) error {
	return func(w *os.File) error {
		_, err := w.WriteString(s)
		return err
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var n []string
	for _, e := range es {
		n = append(n, e.Name())
	}
	return n
}

func read(t *testing.T, p string) string {
	t.Helper()
	b, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestModeOwnerAndXattrsAreKept(t *testing.T) {
	dir := t.TempDir()
	p := filepath.Join(dir, "f")
	if err := os.WriteFile(p, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(p, 0o4751); err != nil {
		t.Fatal(err)
	}
	xattr := unix.Setxattr(p, "user.fentry", []byte("kept"), 0) == nil
	root := os.Geteuid() == 0
	if root {
		if err := os.Chown(p, 12, 34); err != nil {
			t.Fatal(err)
		}
		if err := unix.Chmod(p, 0o4751); err != nil {
			t.Fatal(err)
		}
	}
	if err := atomicfile.Write(p, atomicfile.Options{}, put("new")); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(p, &st); err != nil {
		t.Fatal(err)
	}
	if got := st.Mode & 0o7777; got != 0o4751 {
		t.Errorf("mode %o, want 4751", got)
	}
	if root && (st.Uid != 12 || st.Gid != 34) {
		t.Errorf("owner %d:%d, want 12:34", st.Uid, st.Gid)
	}
	if xattr {
		b := make([]byte, 16)
		n, err := unix.Getxattr(p, "user.fentry", b)
		if err != nil || string(b[:n]) != "kept" {
			t.Errorf("user.fentry = %q, %v", b[:max(n, 0)], err)
		}
	}
	if read(t, p) != "new" {
		t.Error("contents not replaced")
	}
	if err := atomicfile.Write(p, atomicfile.Options{DropSetID: true}, put("x")); err != nil {
		t.Fatal(err)
	}
	if fi, _ := os.Stat(p); fi.Mode()&os.ModeSetuid != 0 {
		t.Error("set-user-ID bit kept although it was to be dropped")
	}
}

// A directory's default access control list is for new files: one that is replaced has its own, or none.
func TestDefaultACLIsNotTakenOver(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	// Version 2; tag, permissions and id of the owner, user 1234, the group, the mask and others (acl(5)).
	acl := []byte{2, 0, 0, 0}
	for _, e := range [][8]byte{{1, 0, 7, 0, 255, 255, 255, 255}, {2, 0, 6, 0, 0xd2, 4}, {4, 0, 5, 0, 255, 255, 255, 255}, {16, 0, 7, 0, 255, 255, 255, 255},
		{32, 0, 5, 0, 255, 255, 255, 255}} {
		acl = append(acl, e[:]...)
	}
	if err := unix.Setxattr(dir, "system.posix_acl_default", acl, 0); err != nil {
		t.Skipf("no access control lists in %s: %v", dir, err)
	}
	p := filepath.Join(dir, "f")
	if err := os.WriteFile(filepath.Join(other, "f"), []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(other, "f"), p); err != nil {
		t.Skip(err)
	}
	check := func() {
		t.Helper()
		if n, err := unix.Getxattr(p, "system.posix_acl_access", nil); err == nil {
			t.Errorf("an access control list of %d bytes", n)
		}
		if fi, err := os.Stat(p); err != nil || fi.Mode() != 0o640 {
			t.Errorf("mode %v, %v", fi.Mode(), err)
		}
	}
	check()
	if err := atomicfile.Write(p, atomicfile.Options{}, put("new")); err != nil {
		t.Fatal(err)
	}
	check()
	fd, err := unix.Open(p, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.WriteBytes(p, fd, &st, [][]byte{[]byte("newer")}, true); err != nil {
		t.Fatal(err)
	}
	check()
}

func TestFailureLeavesEverythingAsItWas(t *testing.T) {
	dir := t.TempDir()
	p := filepath.Join(dir, "f")
	if err := os.WriteFile(p, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	err := atomicfile.Write(p, atomicfile.Options{}, func(w *os.File) error {
		w.WriteString("half")
		return boom
	})
	if !errors.Is(err, boom) {
		t.Fatalf("error %v, want boom", err)
	}
	if read(t, p) != "old" || len(names(t, dir)) != 1 {
		t.Errorf("contents %q, directory %v", read(t, p), names(t, dir))
	}
}

func TestSymlinkIsFollowedAndHardLinksAsAsked(t *testing.T) {
	dir := t.TempDir()
	real, sym, hard := filepath.Join(dir, "real"), filepath.Join(dir, "sym"), filepath.Join(dir, "hard")
	if err := os.WriteFile(real, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", sym); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(real, hard); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(sym, atomicfile.Options{KeepLinks: true}, put("both")); err != nil {
		t.Fatal(err)
	}
	if fi, _ := os.Lstat(sym); fi.Mode()&os.ModeSymlink == 0 {
		t.Error("symbolic link replaced by a file")
	}
	if read(t, hard) != "both" || read(t, real) != "both" {
		t.Error("hard link broken although it was to be kept")
	}
	if err := atomicfile.Write(sym, atomicfile.Options{}, put("one")); err != nil {
		t.Fatal(err)
	}
	if read(t, hard) != "both" || read(t, real) != "one" {
		t.Errorf("hard %q real %q", read(t, hard), read(t, real))
	}
	if n := names(t, dir); len(n) != 3 {
		t.Errorf("litter: %v", n)
	}
}

func TestNewFileGetsModeOfLike(t *testing.T) {
	dir := t.TempDir()
	like, p := filepath.Join(dir, "like"), filepath.Join(dir, "new")
	if err := os.WriteFile(like, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(p, atomicfile.Options{Like: like}, put("x")); err != nil {
		t.Fatal(err)
	}
	if fi, _ := os.Stat(p); fi.Mode().Perm() != 0o755 {
		t.Errorf("mode %v", fi.Mode())
	}
	if err := atomicfile.Write(dir, atomicfile.Options{}, put("x")); err == nil {
		t.Error("a directory was replaced")
	}
}

// A destination that another user has made says nothing about a file of this user's: neither where it is, nor who can
// read it.
func TestForeignDestination(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: files of another user")
	}
	dir := t.TempDir()
	victim, link, theirs := filepath.Join(dir, "victim"), filepath.Join(dir, "link"), filepath.Join(dir, "theirs")
	for _, p := range []string{victim, theirs} {
		if err := os.WriteFile(p, []byte("old"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("victim", link); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Lchown(link, 65534, 65534), os.Chown(theirs, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(link, atomicfile.Options{}, put("new")); err == nil || read(t, victim) != "old" {
		t.Errorf("another user's link: %v, the file it leads to has %q", err, read(t, victim))
	}
	d, err := safefile.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := atomicfile.WriteIn(d, "link", atomicfile.Options{}, put("new")); err == nil || read(t, victim) != "old" {
		t.Errorf("a link in a directory: %v, the file it leads to has %q", err, read(t, victim))
	}
	for _, own := range []bool{false, true} {
		if err := atomicfile.Write(theirs, atomicfile.Options{Own: own}, put("new")); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(theirs, &st); err != nil {
			t.Fatal(err)
		}
		if (st.Uid == 0) != own {
			t.Errorf("Own %t: the file belongs to user %d", own, st.Uid)
		}
	}
	if n := names(t, dir); len(n) != 3 {
		t.Errorf("litter: %v", n)
	}
}
