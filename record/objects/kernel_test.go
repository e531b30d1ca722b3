package objects_test

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/e2e/corpus"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/record/objects"
)

// kernelSource returns the tree of Debian's kernel source package in the cache. It is fetched, 140 MB, the first time.
// What no small configuration compiles is left out.
func kernelSource(t *testing.T) string {
	t.Helper()
	cache, err := corpus.Dir()
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(cache, "source", "linux-source-6.1")
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	testtool.Need(t, "apt-get", "ar", "tar", "xz")
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "linux.tmp-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	const script = `set -e
apt-get download -q -o Acquire::Retries=5 linux-source-6.1
ar p linux-source-6.1_*.deb data.tar.xz | tar xJf -
tar xJf usr/src/linux-source-6.1.tar.xz --exclude='linux-source-6.1/Documentation/*/*' --exclude='linux-source-6.1/tools/testing' \
	--exclude='linux-source-6.1/drivers/gpu/*.[ch]' --exclude='linux-source-6.1/drivers/net/*.[ch]' \
	--exclude='linux-source-6.1/drivers/media/*.[ch]' --exclude='linux-source-6.1/sound/*.[ch]'`
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("Debian's kernel source cannot be had: %v\n%s", err, out)
	}
	if err := os.Rename(filepath.Join(tmp, "linux-source-6.1"), dir); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	return dir
}

// recordmcount builds the kernel's program.
func recordmcount(t *testing.T) string {
	t.Helper()
	testtool.Need(t, "gcc")
	src := filepath.Join(kernelSource(t), "scripts", "recordmcount.c")
	bin := filepath.Join(t.TempDir(), "recordmcount")
	command(t, "gcc", "-O2", "-w", "-o", bin, src)
	return bin
}

// A kernelBuild is a kernel in the smallest configuration that has the function tracer, compiled with this project's
// program in place of recordmcount. Beside every object FILE that it was called for is FILE.before.
type kernelBuild struct {
	source, dir string
	make        []string
}

// newKernelBuild configures the kernel. flags are for make.
func newKernelBuild(t *testing.T, fentry string, flags []string, config ...string) *kernelBuild {
	t.Helper()
	testtool.Need(t, "make", "flex", "bison", "bc", "gcc", "/usr/include/gelf.h")
	k := &kernelBuild{source: kernelSource(t), dir: t.TempDir()}
	// The compiler could write the tables too, and does where it may.
	k.make = append([]string{"make", "-j2", "-C", k.source, "O=" +
		k.dir, "CONFIG_FTRACE_MCOUNT_USE_CC=", "CONFIG_FTRACE_MCOUNT_USE_RECORDMCOUNT=y"}, flags...)
	k.run(t, "tinyconfig")
	dot := filepath.Join(k.dir, ".config")
	const options = `CONFIG_EXPERT=y
CONFIG_FTRACE=y
CONFIG_DEBUG_KERNEL=y
CONFIG_FUNCTION_TRACER=y
CONFIG_DYNAMIC_FTRACE=y
CONFIG_PRINTK=y
CONFIG_KALLSYMS=y
CONFIG_MODULES=y
CONFIG_MMU=y
`
	write(t, dot, []byte(string(read(t, dot))+options+strings.Join(config, "\n")+"\n"))
	k.run(t, "olddefconfig")
	if !strings.Contains(string(read(t, dot)), "\nCONFIG_FTRACE_MCOUNT_RECORD=y\n") {
		t.Fatal("this kernel cannot be configured for the function tracer")
	}
	k.run(t, "prepare", "scripts")
	tool := filepath.Join(k.dir, "scripts", "recordmcount")
	if err := os.Remove(tool); err != nil {
		t.Fatal(err)
	}
	// The name decides which program it is.
	bin := filepath.Join(t.TempDir(), "recordmcount")
	if err := os.Symlink(fentry, bin); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nfor f; do :; done\ncp \"$f\" \"$f.before\"\nexec %s \"$@\"\n", bin)
	if err := runfile.WriteFile(tool, []byte(script)); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *kernelBuild) run(t *testing.T, targets ...string) {
	t.Helper()
	command(t, append(slices.Clone(k.make), targets...)...)
}

// objects returns the objects as they were before recordmcount was called for them.
func (k *kernelBuild) objects(t *testing.T) (out []string) {
	t.Helper()
	err := filepath.WalkDir(k.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".before") {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// mcountLoc returns the table of the kernel, from __start_mcount_loc to __stop_mcount_loc.
func mcountLoc(t *testing.T, path string) []uint64 {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]uint64{}
	for _, s := range syms {
		at[s.Name] = s.Value
	}
	start, stop := at["__start_mcount_loc"], at["__stop_mcount_loc"]
	word := uint64(8)
	if f.Class == elf.ELFCLASS32 {
		word = 4
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_PROGBITS || start == 0 || start < s.Addr || stop > s.Addr+s.Size {
			continue
		}
		data, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		var out []uint64
		for a := start; a < stop; a += word {
			if word == 4 {
				out = append(out, uint64(f.ByteOrder.Uint32(data[a-s.Addr:])))
			} else {
				out = append(out, f.ByteOrder.Uint64(data[a-s.Addr:]))
			}
		}
		return out
	}
	t.Fatalf("%s has no table", path)
	return nil
}

// fentryCommand builds the program.
func fentryCommand(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "fentry")
	command(t, "go", "build", "-o", bin, "../../cmd/fentry")
	return bin
}

// TestKernel compiles parts of the kernel for x86-64 with this project's program in place of recordmcount, and compares
// object by object. FENTRY_WIDE=1: the whole kernel, for other machines too, and its table, with the objects of
// recordmcount and with tables a section.
func TestKernel(t *testing.T) {
	tool := recordmcount(t)
	fentry := fentryCommand(t)
	wide := testtool.Wide()
	for _, tt := range []struct {
		name, cross string
		flags       []string
		config      []string
	}{
		{"x86_64", "", nil, []string{"CONFIG_64BIT=y", "CONFIG_UNWINDER_GUESS=y"}},
		{"arm", "arm-linux-gnueabihf-", nil, nil},
		{"powerpc", "powerpc64le-linux-gnu-", nil, []string{"CONFIG_PPC64=y", "CONFIG_CPU_LITTLE_ENDIAN=y"}},
		{"mips", "mips-linux-gnu-", nil, nil},
	} {
		if tt.cross != "" && !wide {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			testtool.Need(t, tt.cross+"gcc")
			k := newKernelBuild(t, fentry, append(tt.flags, "ARCH="+tt.name, "CROSS_COMPILE="+tt.cross), tt.config...)
			if wide {
				k.run(t, "vmlinux")
			} else {
				k.run(t, "mm/")
			}
			list := k.objects(t)
			var sum tally
			for _, before := range list {
				obj := filepath.Join(t.TempDir(), "x.o")
				write(t, obj, read(t, before))
				compare(t, tool, tt.cross+"objdump", obj, &sum)
				if t.Failed() {
					t.Fatal(before)
				}
			}
			t.Log(&sum)
			if len(list) < 40 || sum.sites < 500 {
				t.Errorf("%d objects with %d sites", len(list), sum.sites)
			}
			if wide {
				k.images(t, tool, list)
			}
		})
	}
}

// images links the kernel with the objects of recordmcount, and with tables a section, and compares its tables.
func (k *kernelBuild) images(t *testing.T, tool string, list []string) {
	t.Helper()
	vmlinux := filepath.Join(k.dir, "vmlinux")
	want := mcountLoc(t, vmlinux)
	t.Logf("%d entries in the kernel's table", len(want))
	for name, make := range map[string]func(before, obj string){
		"recordmcount": func(before, obj string) {
			compat := record(t, read(t, before), objects.Options{Compat: true})
			// It finds no symbol in a section, or misses a call on MIPS: compare has explained that.
			if exec.Command(tool, obj).Run() != nil || !maps.Equal(entries(t, read(t, obj)), entries(t, compat)) {
				write(t, obj, compat)
			}
		},
		"a table a section": func(before, obj string) {
			write(t, obj, record(t, read(t, before), objects.Options{}))
		},
	} {
		for _, before := range list {
			obj := strings.TrimSuffix(before, ".before")
			write(t, obj, read(t, before))
			make(before, obj)
		}
		k.run(t, "vmlinux")
		if got := mcountLoc(t, vmlinux); !slices.Equal(slices.Sorted(slices.Values(got)),
			slices.Sorted(slices.Values(want))) {
			t.Errorf("%s: a table of %d entries, want the same %d", name, len(got), len(want))
		}
	}
}
