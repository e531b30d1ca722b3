package corpus

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Name is a program of the corpus.
type Name string

// The programs.
const (
	Lua    Name = "lua"    // the interpreter, one executable
	SQLite Name = "sqlite" // the shell with the amalgamation
	Zstd   Name = "zstd"   // the command line tool with the library inside
	Redis  Name = "redis"  // the server; redis-cli and redis-benchmark stand beside it
)

// Flags say how to build. The zero value of CC is gcc. CC can have options behind it, separated by blanks.
type Flags struct {
	CC    string
	C, LD []string
}

// Built is a finished build.
type Built struct {
	Dir     string // holds everything that was built
	Program string // the executable
}

type recipe struct {
	pkg     string
	tools   [][2]string // tool, Debian package
	program string
	build   func(ctx context.Context, cache, src, dir string, f Flags) error
}

var recipes = map[Name]recipe{
	Lua:    {"lua5.4", nil, "lua", buildLua},
	SQLite: {"sqlite3", [][2]string{{"tclsh", "tcl"}, {"make", "make"}}, "sqlite3", buildSQLite},
	Zstd:   {"libzstd", [][2]string{{"make", "make"}}, "programs/zstd", buildZstd},
	Redis:  {"redis", [][2]string{{"make", "make"}}, "src/redis-server", buildRedis},
}

// Build returns a program built with the flags, from the cache if it has been built before.
func Build(ctx context.Context, name Name, f Flags) (Built, error) {
	r, ok := recipes[name]
	if !ok {
		return Built{}, fmt.Errorf("corpus: no program %q", name)
	}
	if f.CC == "" {
		f.CC = "gcc"
	}
	compiler, _, _ := strings.Cut(f.CC, " ")
	compilerPackage := compiler
	if triple, ok := strings.CutSuffix(compiler, "-gcc"); ok {
		compilerPackage = "gcc-" + triple
	}
	for _, t := range append([][2]string{{compiler, compilerPackage}}, r.tools...) {
		if _, err := exec.LookPath(t[0]); err != nil {
			return Built{}, &Missing{t[0], "apt-get install " + t[1]}
		}
	}
	cache, err := Dir()
	if err != nil {
		return Built{}, err
	}
	key := fmt.Sprintf("%s-%.8x", name, sha256.Sum256(fmt.Appendf(nil, "2 %s %q %q", f.CC, f.C, f.LD)))
	dir := filepath.Join(cache, "built", key)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return Built{}, err
	}
	unlock, err := lock(dir)
	if err != nil {
		return Built{}, err
	}
	defer unlock()
	done := Built{dir, filepath.Join(dir, r.program)}
	if _, err := os.Stat(filepath.Join(dir, ".done")); err == nil {
		return done, nil
	}
	src, err := source(ctx, cache, r.pkg)
	if err != nil {
		return Built{}, err
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return Built{}, err
	}
	if err := r.build(ctx, cache, src, dir, f); err != nil {
		return Built{}, fmt.Errorf("building %s with %s %s: %w", name, f.CC, strings.Join(f.C, " "), err)
	}
	if _, err := os.Stat(done.Program); err != nil {
		return Built{}, err
	}
	return done, os.WriteFile(filepath.Join(dir, ".done"), fmt.Appendf(nil, "%s %q %q\n", f.CC, f.C, f.LD), 0o644)
}

func buildLua(ctx context.Context, _, src, dir string, f Flags) error {
	// Debian's headers ask for this name from configure.
	header := filepath.Join(dir, "lua5.4-deb-multiarch.h")
	if err := os.WriteFile(header, []byte("#define DEB_HOST_MULTIARCH \"x86_64-linux-gnu\"\n"), 0o644); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(src, "src", "*.c"))
	if err != nil {
		return err
	}
	// A fixed seed: the hash of strings, and with it the number of calls, is the same in every run.
	argv := append(strings.Fields(f.CC), "-std=gnu11", "-DLUA_USE_POSIX", "-DLUA_COMPAT_5_3",
		"-Dluai_makeseed(L)=42u", "-I", dir, "-o", "lua")
	argv = append(argv, f.C...)
	for _, c := range files {
		if filepath.Base(c) != "luac.c" {
			argv = append(argv, c)
		}
	}
	return command(ctx, dir, nil, append(append(argv, f.LD...), "-Wl,-E", "-lm")...)
}

func buildSQLite(ctx context.Context, cache, src, dir string, f Flags) error {
	amalgamation, err := amalgamate(ctx, cache, src)
	if err != nil {
		return err
	}
	argv := append(strings.Fields(f.CC), "-DSQLITE_THREADSAFE=1", "-DSQLITE_OMIT_LOAD_EXTENSION",
		"-DSQLITE_ENABLE_FTS5", "-I", amalgamation, "-o", "sqlite3")
	argv = append(argv, f.C...)
	argv = append(argv, filepath.Join(amalgamation, "shell.c"), filepath.Join(amalgamation, "sqlite3.c"))
	return command(ctx, dir, nil, append(append(argv, f.LD...), "-lm", "-pthread")...)
}

// amalgamate makes sqlite3.c and shell.c of the source tree, once.
func amalgamate(ctx context.Context, cache, src string) (string, error) {
	dir := filepath.Join(cache, "built", "sqlite-amalgamation")
	unlock, err := lock(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(filepath.Join(dir, ".done")); err == nil {
		return dir, nil
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return "", err
	}
	if err := command(ctx, dir, nil, filepath.Join(src, "configure"), "--disable-tcl", "--disable-readline"); err != nil {
		return "", err
	}
	if err := command(ctx, dir, nil, "make", "sqlite3.c", "shell.c"); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, ".done"), nil, 0o644)
}

func buildZstd(ctx context.Context, _, src, dir string, f Flags) error {
	if err := copyTree(src, dir, "lib", "programs", "tests"); err != nil {
		return err
	}
	flags := []string{"CC=" + f.CC, "CFLAGS=" + strings.Join(f.C, " "), "LDFLAGS=" + strings.Join(f.LD, " "),
		"HAVE_ZLIB=0", "HAVE_LZMA=0", "HAVE_LZ4=0", "BACKTRACE=0", "-j" + jobs}
	if err := command(ctx, dir, nil, append([]string{"make", "-C", "programs", "zstd"}, flags...)...); err != nil {
		return err
	}
	return command(ctx, dir, nil, "make", "-C", "tests", "datagen", "-j"+jobs)
}

func buildRedis(ctx context.Context, _, src, dir string, f Flags) error {
	if err := copyTree(src, dir, "src", "deps", "tests", "runtest", "redis.conf", "utils"); err != nil {
		return err
	}
	// Through the environment: the makefiles add to CFLAGS, and the libraries in deps get them as well.
	env := []string{"CFLAGS=" + strings.Join(f.C, " "), "LDFLAGS=" + strings.Join(f.LD, " ")}
	return command(ctx, dir, env, "make", "-C", "src", "redis-server", "redis-cli", "redis-benchmark",
		"CC="+f.CC, "MALLOC=libc", "OPTIMIZATION=-O2",
		"-j"+jobs)
}

// jobs a build runs at the same time; the tests that asked for it run in parallel, too.
const jobs = "2"

// copyTree copies files and directories of a source tree, with modes and symbolic links.
func copyTree(src, dst string, names ...string) error {
	for _, name := range names {
		err := filepath.WalkDir(filepath.Join(src, name), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(src, path)
			if err != nil {
				return err
			}
			return copyEntry(path, filepath.Join(dst, rel), d)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func copyEntry(from, to string, d fs.DirEntry) error {
	switch {
	case d.IsDir():
		return os.MkdirAll(to, 0o755)
	case d.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, info.Mode().Perm())
}
