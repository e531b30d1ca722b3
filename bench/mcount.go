package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/e2e/corpus"
)

// mcount prints what adding tables to objects costs, against recordmcount built from the sources the tests have
// fetched. The wanted ratios differ from line to line.
func (b *bench) mcount() error {
	peer := b.recordmcount()
	if peer == "" {
		fmt.Println("not measured: recordmcount " +
			"(FENTRY_WIDE=1 go test -run Recordmcount ./record/objects fetches its source)")
	}
	inputs, err := b.mcountInputs()
	if err != nil {
		return err
	}
	fmt.Println("Adding __mcount_loc; x is a multiple of recordmcount's, RSS x of the object's size")
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "CPU s\t(min)\tCPU x\twanted\twall s\twall x\twanted\tRSS MB\tRSS x\twanted\t\t")
	for _, in := range inputs {
		vs, err := b.mcountRuns(in, peer)
		if err != nil {
			return err
		}
		var base figures
		last := vs[len(vs)-1]
		if peer != "" {
			base = figuresOf(last)
		}
		eachMeasured(vs, func(v *variant, f figures) {
			want := in.wanted
			if peer != "" && v == last {
				want = wanted{}
			}
			fmt.Fprintf(w, "%.3f\t%.3f\t%s\t%s\t%.3f\t%s\t%s\t%.0f\t%s\t%s\t %s\t\n", f.cpu, f.leastCPU, times(f.cpu, base.cpu),
				want.cpu, f.wall, times(f.wall, base.wall), want.wall, f.rss/1e6, times(f.rss, in.size), want.rss, v.name)
		})
	}
	return w.Flush()
}

// times is a ratio, or a dash where there is nothing to compare with.
func times(v, base float64) string {
	if base == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v/base)
}

// mcountRuns measures one input. Every run has a directory of its own, because ext4 looks at the inodes that have
// been freed within some minutes whenever it makes a file near them: runs would pay for what those before them have
// replaced. The files stay, emptied: the memory they took is what the next run gets. In a virtual machine that gives
// memory back to its host, a page that has not been used lately costs many times what a run does with it.
func (b *bench) mcountRuns(in mcountInput, peer string) ([]*variant, error) {
	top := filepath.Join(b.dir, "mcount-work")
	if err := os.Mkdir(top, 0o755); err != nil {
		return nil, err
	}
	defer os.RemoveAll(top)
	apart(top)
	vs := []*variant{
		{name: in.name + ": fentry mcount", job: job{argv: []string{b.fentry, "mcount"}}},
		{name: in.name + ": fentry mcount --compat", job: job{argv: []string{b.fentry, "mcount", "--compat"}}},
	}
	if peer != "" {
		vs = append(vs, &variant{name: in.name + ": recordmcount", job: job{argv: []string{peer}}})
	}
	used := map[uint64]bool{}
	for _, v := range vs {
		v.job.argv = append([]string{"sh", "-c", in.script}, v.job.argv...)
		v.before = func() (err error) {
			if v.job.dir, err = fresh(top, used); err != nil {
				return err
			}
			return os.CopyFS(v.job.dir, os.DirFS(in.dir))
		}
		v.clean = func() error { return empty(v.job.dir) }
	}
	return vs, b.inTurn(vs, 1)
}

// empty truncates the files of a directory.
func empty(dir string) error {
	list, err := os.ReadDir(dir)
	for _, e := range list {
		err = errors.Join(err, os.Truncate(filepath.Join(dir, e.Name()), 0))
	}
	return err
}

// fresh makes a directory whose files get their inodes where no other run has had them, if that can be had: used are
// the groups of inodes of the earlier ones. A group of ext4 has 8192 inodes unless mke2fs was told otherwise.
func fresh(top string, used map[uint64]bool) (string, error) {
	for try := 0; ; try++ {
		dir, err := os.MkdirTemp(top, "")
		if err != nil {
			return "", err
		}
		st, err := os.Stat(dir)
		if err != nil {
			return "", err
		}
		group := uint64(try)
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			group = sys.Ino / 8192
		}
		if !used[group] || try == 100 {
			used[group] = true
			return dir, nil
		}
	}
}

// apart asks the file system to put the directories made in dir far from each other (chattr +T). Where it cannot,
// they are where they are.
func apart(dir string) {
	const topDir = 0x00020000 // FS_TOPDIR_FL of linux/fs.h
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	if flags, err := unix.IoctlGetInt(int(d.Fd()), unix.FS_IOC_GETFLAGS); err == nil {
		_ = unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, flags|topDir)
	}
}

// mcountInput is a directory of objects and how a tool, "$0" "$@", is run on them.
type mcountInput struct {
	name, dir, script string
	size              float64 // of the object, bytes, where there is one
	wanted            wanted
}

// wanted is what the ratios of an input may be, "" for no target.
type wanted struct{ cpu, wall, rss string }

func (b *bench) mcountInputs() ([]mcountInput, error) {
	small, functions, sections, each := 2000, 900_000, 33_000, 500
	if b.quick {
		small, functions, sections, each = 20, 900, 330, 5
	}
	many, few := filepath.Join(b.dir, "mcount-many"), filepath.Join(b.dir, "mcount-few")
	if err := b.luaObjects(many, small); err != nil {
		return nil, err
	}
	if err := b.luaObjects(few, each); err != nil {
		return nil, err
	}
	big, secs := filepath.Join(b.dir, "mcount-big"), filepath.Join(b.dir, "mcount-sections")
	if err := b.assembled(big, functions, "f%d:\tcall mcount\n\tret\n\t.globl f%[1]d\n",
		"\t.cfi_sections .debug_frame\n\t.section .data\n\t.quad .text\n\t.text\n"); err != nil {
		return nil, err
	}
	if err := b.assembled(secs, sections,
		"\t.section .text.f%d,\"ax\"\n\t.globl f%[1]d\nf%[1]d:\tcall mcount\n\tret\n", ""); err != nil {
		return nil, err
	}
	one := func(dir string) (float64, string) {
		st, err := os.Stat(filepath.Join(dir, "x.o"))
		if err != nil {
			return 0, "one object"
		}
		return float64(st.Size()), fmt.Sprintf("one object of %.0f MB", float64(st.Size())/1e6)
	}
	all := `"$0" "$@" *.o`
	bigSize, bigName := one(big)
	secsSize, secsName := one(secs)
	return []mcountInput{
		{fmt.Sprintf("%d objects, one process", small), many, all, 0, wanted{cpu: "1.0"}},
		{fmt.Sprintf("%d objects, a process each", each), few, `ls | xargs -n 1 "$0" "$@"`, 0, wanted{cpu: "2.5"}},
		{bigName, big, all, bigSize, wanted{cpu: "1", rss: "2"}},
		{fmt.Sprintf("%s, %d sections", secsName, sections), secs, all, secsSize, wanted{cpu: "0.05"}},
	}, nil
}

// luaObjects fills a directory with n objects: those of Lua, again and again.
func (b *bench) luaObjects(dir string, n int) error {
	if _, err := corpus.Build(b.ctx, corpus.Lua, corpus.Flags{C: []string{"-O2", "-pg", "-mfentry"}}); err != nil {
		return err
	}
	cache, err := corpus.Dir()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(cache, "source", "lua5.4", "src", "l*.c"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no sources of Lua (%v)", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	include := filepath.Join(b.dir, "mcount-include")
	if err := os.MkdirAll(include, 0o755); err != nil {
		return err
	}
	header := filepath.Join(include, "lua5.4-deb-multiarch.h")
	if err := os.WriteFile(header, []byte("#define DEB_HOST_MULTIARCH \"any\"\n"), 0o644); err != nil {
		return err
	}
	var objs [][]byte
	for _, f := range files {
		if len(objs) == n {
			break
		}
		obj := filepath.Join(include, "x.o")
		if err := b.tool("gcc", "-std=gnu11", "-w", "-O2", "-pg", "-mfentry", "-fno-pie",
			"-DLUA_USE_POSIX", "-DLUA_COMPAT_5_3", "-I", include, "-c", f, "-o", obj); err != nil {
			return err
		}
		o, err := os.ReadFile(obj)
		if err != nil {
			return err
		}
		objs = append(objs, o)
	}
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.o", i)), objs[i%len(objs)], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// assembled makes a directory with one object: n times the text, with the number for %d.
func (b *bench) assembled(dir string, n int, text, head string) error {
	var s bytes.Buffer
	s.WriteString(head)
	for i := range n {
		fmt.Fprintf(&s, text, i)
	}
	src := filepath.Join(b.dir, "mcount.s")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(src, s.Bytes(), 0o644); err != nil {
		return err
	}
	return b.tool("gcc", "-c", src, "-o", filepath.Join(dir, "x.o"))
}

// recordmcount builds the peer, "" when its source is not there.
func (b *bench) recordmcount() string {
	cache, err := corpus.Dir()
	if err != nil {
		return ""
	}
	out := filepath.Join(b.dir, "recordmcount")
	if b.tool("gcc", "-O2", "-w", "-o", out, filepath.Join(cache, "source", "linux-source-6.1", "scripts", "recordmcount.c")) != nil {
		return ""
	}
	return out
}
