package corpus

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Kernel returns Debian's kernel for virtual machines of an architecture, such as arm64: a file that qemu-system
// starts.
func Kernel(ctx context.Context, arch string) (string, error) {
	cache, err := Dir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "kernel-"+arch)
	unlock, err := lock(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	image := func(below string) string {
		found, _ := filepath.Glob(filepath.Join(below, "boot", "vmlinuz-*"))
		if len(found) != 1 {
			return ""
		}
		return found[0]
	}
	if k := image(dir); k != "" {
		return k, nil
	}
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", &Missing{tool, "apt-get install apt dpkg, on Debian"}
		}
	}
	apt, err := privateApt(ctx, cache, arch)
	if err != nil {
		return "", err
	}
	// The package without a version in its name needs the one that has it.
	latest := "linux-image-cloud-" + arch
	ask := exec.CommandContext(ctx, "apt-cache", append(apt[1:], "depends", "--important", latest)...)
	out, err := ask.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", ask, err)
	}
	_, dep, ok := strings.Cut(string(out), "Depends: ")
	if !ok {
		return "", &Missing{"package " + latest, "Debian has none"}
	}
	pkg, _, _ := strings.Cut(dep, "\n")
	tmp, err := os.MkdirTemp(cache, "kernel.tmp-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := command(ctx, tmp, nil, append(apt, "download", pkg)...); err != nil {
		return "", &Missing{"package " + pkg, err.Error()}
	}
	deb, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(deb) != 1 {
		return "", fmt.Errorf("%s: %d files after apt-get download", pkg, len(deb))
	}
	root := filepath.Join(tmp, "root")
	if err := command(ctx, tmp, nil, "dpkg-deb", "-x", deb[0], root); err != nil {
		return "", err
	}
	if image(root) == "" {
		return "", fmt.Errorf("%s: no kernel in it", pkg)
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.Rename(root, dir); err != nil {
		return "", err
	}
	return image(dir), nil
}
