package symbol

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestTable compares functions with what nm prints.
func TestTable(t *testing.T) {
	testtool.Need(t, "nm", "strip")
	img := compile(t, "g++", "-O2")
	tab, err := Open(img, Options{DebugDirs: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	defer tab.Close()
	names := make(map[uint64][]string)
	sizes := make(map[uint64]uint64)
	for _, line := range strings.Split(run(t, "", "nm", "-S", img), "\n") {
		f := strings.Fields(line)
		if len(f) == 4 && strings.Contains("tTwW", f[2]) {
			a, _ := strconv.ParseUint(f[0], 16, 64)
			sizes[a], _ = strconv.ParseUint(f[1], 16, 64)
			names[a] = append(names[a], f[3])
		}
	}
	if len(names) < 10 {
		t.Fatalf("nm prints %d functions", len(names))
	}
	for a, list := range names {
		for _, off := range []uint64{0, sizes[a] / 2, sizes[a] - 1} {
			fn, ok := tab.Lookup(a + off)
			if !ok || fn.Addr != a || fn.Size != sizes[a] || !slices.Contains(list, fn.Name) || fn.Source != SourceSymtab {
				t.Errorf("%#x+%#x: %+v %v, nm says %q of %d bytes", a, off, fn, ok, list, sizes[a])
			}
		}
		if fn, ok := tab.Lookup(a + sizes[a]); ok && fn.Addr == a {
			t.Errorf("%#x: reaches behind its end", a)
		}
	}
	for i, fn := range tab.Funcs() {
		if i > 0 && tab.Funcs()[i-1].Addr >= fn.Addr {
			t.Errorf("%+v is out of order", fn)
		}
		if tab.At(fn.Addr) != i || tab.Before(fn.Addr) != i {
			t.Errorf("%+v: At and Before disagree with its index %d", fn, i)
		}
	}
	if _, ok := tab.Lookup(0); ok {
		t.Error("a function at 0")
	}
	if _, ok := tab.Lookup(^uint64(0)); ok {
		t.Error("a function at the end of memory")
	}

	// Without .symtab the unwind tables know the functions.
	run(t, "", "strip", img)
	bare, err := Open(img, Options{DebugDirs: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	for a := range names {
		fn, ok := bare.Lookup(a)
		if !ok || fn.Addr != a || fn.Size == 0 {
			t.Errorf("stripped: %q at %#x: %+v %v", names[a], a, fn, ok)
		}
	}
}

// TestNameChoice gives one address several names.
func TestNameChoice(t *testing.T) {
	testtool.Need(t, "g++", "strip")
	for _, tt := range []struct{ text, want string }{
		{".globl a; .weak b; f a; f b; f c; a: b: c: ret", "a"},
		{".weak b; f b; f c; b: c: ret", "c"},
		{".globl _x,__y,zz; f _x; f __y; f zz; _x: __y: zz: ret", "zz"},
		{".globl b,a; f a; f b; b: a: ret", "a"},
		{".globl chosen,resolver; .type chosen,@gnu_indirect_function; .hidden resolver; f resolver; chosen: resolver: ret", "resolver"},
		{".globl v_impl; f v_impl; v_impl: ret; .symver v_impl,v@@@VERS_1", "v"},
		{".globl v,o; f v; f o; v: o: ret; .symver o,a@VERS_1,remove", "v"},
		{".weak v; f v; f o; v: o: ret; .globl o; .symver o,a@VERS_1,remove", "a"},
	} {
		dir := t.TempDir()
		img := filepath.Join(dir, "lib.so")
		src := ".macro f n\n.type \\n,@function\n.endm\n.text\n" + strings.ReplaceAll(tt.text, "; ", "\n") + "\n.section .note.GNU-stack,\"\",@progbits\n"
		args := []string{"-shared", "-nostdlib", "-x", "assembler", "-o", img, "-"}
		if strings.Contains(tt.text, "symver") {
			run(t, "VERS_1 { *; };\n", "sh", "-c", "cat >"+filepath.Join(dir, "map"))
			args = append(args[:4:4], "-", "-Wl,--version-script="+filepath.Join(dir, "map"), "-o", img)
		}
		run(t, src, "g++", args...)
		for round := range 3 {
			if round == 2 && strings.Contains(tt.text, "symver") { // by the dynamic symbols alone
				run(t, "", "strip", img)
			}
			tab, err := Open(img, Options{DebugDirs: []string{}})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, fn := range tab.Funcs() {
				got = append(got, fn.Name)
			}
			if fmt.Sprint(got) != "["+tt.want+"]" {
				t.Errorf("%s: %q, want %q", tt.text, got, tt.want)
			}
			tab.Close()
		}
	}
}

func TestOpenErrors(t *testing.T) {
	for _, p := range []string{"/does/not/exist", "/", "/dev/null", "table.go"} {
		if tab, err := Open(p, Options{}); err == nil {
			tab.Close()
			t.Errorf("%s: no error", p)
		}
	}
}
