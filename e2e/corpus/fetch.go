package corpus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Missing is a tool or a service this machine lacks.
type Missing struct {
	What string // the tool
	Hint string // how to get it
}

func (m *Missing) Error() string { return m.What + " is missing: " + m.Hint }

// Dir is the cache directory, created if needed.
func Dir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "fentry-tests")
	return dir, os.MkdirAll(dir, 0o755)
}

// lock keeps other processes and goroutines out of one entry of the cache until unlock is called.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
}

// source returns the directory with a package's unpacked source, fetching it first if needed.
func source(ctx context.Context, cache, pkg string) (string, error) {
	dir := filepath.Join(cache, "source", pkg)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	for _, tool := range []string{"apt-get", "dpkg-source"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", &Missing{tool, "apt-get install dpkg-dev, on Debian"}
		}
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), pkg+".tmp-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	apt, err := privateApt(ctx, cache, "")
	if err != nil {
		return "", err
	}
	if err := command(ctx, tmp, nil, append(apt, "source", "--download-only", pkg)...); err != nil {
		return "", &Missing{"source package " + pkg, err.Error()}
	}
	dsc, err := filepath.Glob(filepath.Join(tmp, "*.dsc"))
	if err != nil || len(dsc) != 1 {
		return "", fmt.Errorf("%s: %d .dsc files after apt-get source", pkg, len(dsc))
	}
	if err := command(ctx, tmp, nil, "dpkg-source", "--no-check", "-x", dsc[0], "unpacked"); err != nil {
		return "", err
	}
	return dir, os.Rename(filepath.Join(tmp, "unpacked"), dir)
}

// privateApt is an apt-get command line with a configuration of its own, whose package lists have been fetched: that
// of source packages, or of a machine's packages. What is installed here does not count.
func privateApt(ctx context.Context, cache, arch string) ([]string, error) {
	root, what, found := filepath.Join(cache, "apt"), "deb-src [", "*Sources*"
	if arch != "" {
		root, what, found = root+"-"+arch, "deb [arch="+arch+" ", "*Packages*"
	}
	unlock, err := lock(root)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, d := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return nil, err
		}
	}
	const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
	if _, err := os.Stat(keyring); err != nil {
		return nil, &Missing{keyring, "apt-get install debian-archive-keyring"}
	}
	suite, err := codename()
	if err != nil {
		return nil, err
	}
	list := fmt.Sprintf("%ssigned-by=%s] http://deb.debian.org/debian %s main\n", what, keyring, suite)
	if err := os.WriteFile(filepath.Join(root, "sources.list"), []byte(list), 0o644); err != nil {
		return nil, err
	}
	apt := []string{"apt-get", "-q",
		"-o", "Dir::Etc::SourceList=" + filepath.Join(root, "sources.list"), "-o", "Dir::Etc::SourceParts=/nonexistent",
		"-o", "Dir::State::Lists=" + filepath.Join(root, "lists"), "-o", "Dir::Cache=" + root,
		"-o", "APT::Sandbox::User=", "-o", "Debug::NoLocking=1", "-o", "Acquire::Retries=3"}
	if arch != "" {
		status := filepath.Join(root, "status")
		if err := os.WriteFile(status, nil, 0o644); err != nil {
			return nil, err
		}
		apt = append(apt, "-o", "APT::Architecture="+arch, "-o", "APT::Architectures="+arch,
			"-o", "Dir::State::status="+status)
	}
	if lists, _ := filepath.Glob(filepath.Join(root, "lists", found)); len(lists) > 0 {
		return apt, nil
	}
	if err := command(ctx, root, nil, append(apt, "update")...); err != nil {
		return nil, &Missing{"Debian's list of packages", err.Error()}
	}
	return apt, nil
}

// codename is the Debian release sources are taken from: the one that runs, bookworm elsewhere.
func codename() (string, error) {
	b, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	values := map[string]string{}
	for _, line := range strings.Split(string(b), "\n") {
		k, v, _ := strings.Cut(line, "=")
		values[k] = strings.Trim(v, `"`)
	}
	if values["ID"] == "debian" && values["VERSION_CODENAME"] != "" {
		return values["VERSION_CODENAME"], nil
	}
	return "bookworm", nil
}

// command runs a tool; its output is part of the error.
func command(ctx context.Context, dir string, env []string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Env = append(cmd.Env, "LC_ALL=C.UTF-8")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		text := out.String()
		if len(text) > 3000 {
			text = "..." + text[len(text)-3000:]
		}
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, text)
	}
	return nil
}
