package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/fentry-dev/fentry/e2e/corpus"
)

// mcount prints what adding tables to objects costs, against recordmcount built from the sources the tests have
// fetched. The wanted ratios differ from line to line.
func (b *bench) mcount() error {
	peer := b.recordmcount()
	if peer == "" {
		fmt.Println("not measured: recordmcount (FENTRY_WIDE=1 go test -run Recordmcount ./record/objects fetches its source)")
	}
	inputs, err := b.mcountInputs()
	if err != nil {
		return err
	}
	fmt.Println("Adding __mcount_loc; x is the CPU time as a multiple of recordmcount's")
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "CPU s\t(min)\twall s\tx\twanted\tRSS MB\t\t")
	for _, in := range inputs {
		work := filepath.Join(b.dir, "mcount-work")
		reset := func() error {
			if err := os.RemoveAll(work); err != nil {
				return err
			}
			return os.CopyFS(work, os.DirFS(in.dir))
		}
		if err := reset(); err != nil {
			return err
		}
		shell := func(tool ...string) job {
			return job{argv: append([]string{"sh", "-c", in.script}, tool...), dir: work}
		}
		vs := []*variant{
			{name: in.name + ": fentry mcount", job: shell(b.fentry, "mcount"), clean: reset},
			{name: in.name + ": fentry mcount --compat", job: shell(b.fentry, "mcount", "--compat"), clean: reset},
		}
		if peer != "" {
			vs = append(vs, &variant{name: in.name + ": recordmcount", job: shell(peer), clean: reset})
		}
		if err := b.inTurn(vs); err != nil {
			return err
		}
		base := 0.0
		if last := vs[len(vs)-1]; peer != "" && len(last.samples) > 0 {
			base, _ = middle(last.samples, cpuOf)
		}
		for i, v := range vs {
			if len(v.samples) == 0 {
				continue
			}
			cpu, least := middle(v.samples, cpuOf)
			wall, _ := middle(v.samples, wallOf)
			rss, _ := middle(v.samples, rssOf)
			ratio, wanted := "-", ""
			if base > 0 {
				ratio = fmt.Sprintf("%.2f", cpu/base)
			}
			if i < 2 {
				wanted = in.wanted
			}
			fmt.Fprintf(w, "%.3f\t%.3f\t%.3f\t%s\t%s\t%.0f\t %s\t\n", cpu, least, wall, ratio, wanted, rss/1e6, v.name)
		}
	}
	return w.Flush()
}

// mcountInput is a directory of objects and how a tool, "$0" "$@", is run on them.
type mcountInput struct {
	name, dir, script, wanted string
}

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
	if err := b.assembled(big, functions, "f%d:\tcall mcount\n\tret\n\t.globl f%[1]d\n", "\t.cfi_sections .debug_frame\n\t.section .data\n\t.quad .text\n\t.text\n"); err != nil {
		return nil, err
	}
	if err := b.assembled(secs, sections, "\t.section .text.f%d,\"ax\"\n\t.globl f%[1]d\nf%[1]d:\tcall mcount\n\tret\n", ""); err != nil {
		return nil, err
	}
	all := `"$0" "$@" *.o`
	return []mcountInput{
		{fmt.Sprintf("%d objects, one process", small), many, all, "0.7"},
		{fmt.Sprintf("%d objects, a process each", each), few, `ls | xargs -n 1 "$0" "$@"`, "2"},
		{fmt.Sprintf("one object, %d functions", functions), big, all, "1"},
		{fmt.Sprintf("one object, %d sections", sections), secs, all, "0.05"},
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
	if err := os.WriteFile(filepath.Join(include, "lua5.4-deb-multiarch.h"), []byte("#define DEB_HOST_MULTIARCH \"any\"\n"), 0o644); err != nil {
		return err
	}
	var objs [][]byte
	for _, f := range files {
		if len(objs) == n {
			break
		}
		obj := filepath.Join(include, "x.o")
		if err := b.tool("gcc", "-std=gnu11", "-w", "-O2", "-pg", "-mfentry", "-fno-pie", "-DLUA_USE_POSIX", "-DLUA_COMPAT_5_3", "-I", include, "-c", f, "-o", obj); err != nil {
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
	if b.tool("gcc", "-O2", "-w", "-o", out, filepath.Join(cache, "recordmcount", "recordmcount.c")) != nil {
		return ""
	}
	return out
}
