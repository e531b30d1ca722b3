// Package debs gives tests the files of Debian packages for machines other than
// the one they run on.
package debs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// ARM64 returns the directory in which a Debian package for arm64 is unpacked, not
// installed. Packages are downloaded once, by apt-get with a configuration of its
// own, into $XDG_CACHE_HOME/fentry-tests. It skips the test where that is not possible.
func ARM64(t testing.TB, pkg string) string {
	t.Helper()
	for _, tool := range [][2]string{{"apt-get", "apt"}, {"dpkg-deb", "dpkg"}} {
		if _, err := exec.LookPath(tool[0]); err != nil {
			t.Skipf("%s is missing: install %s", tool[0], tool[1])
		}
	}
	const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
	if _, err := os.Stat(keyring); err != nil {
		t.Skipf("%v: install debian-archive-keyring", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("no cache directory: %v", err)
	}
	root := filepath.Join(cache, "fentry-tests", "arm64")
	for _, d := range []string{"lists/partial", "archives/partial", "etc", "pkg"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := os.Create(filepath.Join(root, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "pkg", pkg)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	for name, text := range map[string]string{
		"sources.list": fmt.Sprintf("deb [arch=arm64 signed-by=%s] http://deb.debian.org/debian bookworm main\n", keyring),
		"status":       "",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	apt := []string{
		"-q", "-o", "APT::Architecture=arm64", "-o", "APT::Architectures=arm64", "-o", "APT::Sandbox::User=",
		"-o", "Dir::Etc::SourceList=" + filepath.Join(root, "sources.list"), "-o", "Dir::Etc::SourceParts=/nonexistent",
		"-o", "Dir::State=" + root, "-o", "Dir::State::status=" + filepath.Join(root, "status"),
		"-o", "Dir::State::Lists=" + filepath.Join(root, "lists"), "-o", "Dir::Cache=" + root, "-o", "Debug::NoLocking=1", "-o", "Acquire::Retries=5",
	}
	tmp, err := os.MkdirTemp(root, "tmp-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	run := func(name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Dir = tmp
		if out, err := cmd.CombinedOutput(); err != nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			t.Skipf("package %s for arm64 cannot be had: %s: %v: %s", pkg, name, err, lines[len(lines)-1])
		}
	}
	if lists, _ := filepath.Glob(filepath.Join(root, "lists", "*Packages*")); len(lists) == 0 {
		run("apt-get", append(apt, "update")...)
	}
	run("apt-get", append(apt, "download", pkg)...)
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatalf("%s: %d packages after apt-get download", pkg, len(debs))
	}
	run("dpkg-deb", "-x", debs[0], "unpacked")
	if err := os.Rename(filepath.Join(tmp, "unpacked"), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Root returns a directory with the files of Debian packages for arm64 as if they were installed there: symbolic links
// to them, for an emulator that looks there before it looks at this machine (qemu-aarch64 -L).
func Root(t testing.TB, packages ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, pkg := range packages {
		dir := ARM64(t, pkg)
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			to := filepath.Join(root, rel)
			switch {
			case d.IsDir():
				return os.MkdirAll(to, 0o755)
			case d.Type()&os.ModeSymlink != 0:
				if path, err = os.Readlink(path); err != nil {
					return err
				}
			}
			return os.Symlink(path, to)
		})
		if err != nil {
			t.Fatalf("package %s: %v", pkg, err)
		}
	}
	return root
}
