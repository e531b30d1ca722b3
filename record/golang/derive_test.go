package golang

import (
	"bytes"
	"errors"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/arch/x86/x86asm"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/record/moves"
)

// unknown returns a stripped program that says that a version of Go has linked it that is not known.
func unknown(t *testing.T, goarch string, args ...string) []byte {
	t.Helper()
	if _, _, ok := tried(runtime.Version()); !ok {
		t.Skipf("%s was not tried", runtime.Version())
	}
	raw := parse(t, testtool.Go(t, goarch, append([]string{"-ldflags=-s -w"}, args...)...)).Raw()
	minor := []byte(regexp.MustCompile(`go1\.[0-9]+`).FindString(runtime.Version()))
	return bytes.ReplaceAll(raw, minor, append([]byte("go1.9"), minor[len(minor)-1]))
}

// TestDerived: what the code of a runtime says of it is what is known of it, in programs of all forms; and in none that is
// traced moves what can fault, call or go round.
func TestDerived(t *testing.T) {
	want, _, _ := tried(runtime.Version())
	for _, args := range [][]string{
		{"../../testdata/gostress"}, {"-buildmode=pie", "../../testdata/gostress"}, {"cmd/gofmt"},
	} {
		f, err := elfio.Parse(unknown(t, "amd64", args...))
		if err != nil {
			t.Fatal(err)
		}
		im, err := Read(f)
		if err != nil {
			t.Fatal(err)
		}
		if v := &im.Version; v.Source != Derived || v.GoID != want.GoID || v.Module() {
			t.Errorf("%v: %+v", args, v)
		}
		why := map[Reason]int{}
		for i := range im.Funcs {
			f := &im.Funcs[i]
			m, r := im.Site(f, Options{Runtime: true})
			if why[r]++; r == "" {
				checkMoves(t, im, f, &m)
				checkAlone(t, im, f, &m)
			}
		}
		if n := why[""]; n < 300 || why[Unchecked] > n/3 || why[NeedsModule] > n/20 || why[Switches]+why[Handler] > 0 {
			t.Errorf("%v: %v", args, why)
		}
	}
}

// checkAlone has another decoder say that no instruction that moves can fault.
func checkAlone(t *testing.T, im *Image, f *Func, m *moves.Moves) {
	t.Helper()
	code, err := im.Code(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range m.Runs {
		for o := 0; o < r.Len; {
			in, err := x86asm.Decode(code[r.Addr-f.Entry:][o:], 64)
			if err != nil {
				t.Fatalf("%s: %v", f.Name, err)
			}
			switch in.Op {
			case x86asm.CALL, x86asm.DIV, x86asm.IDIV, x86asm.UD2, x86asm.INT:
				t.Errorf("%s: %v at %#x moves", f.Name, in, r.Addr)
			}
			for _, a := range in.Args {
				mem, ok := a.(x86asm.Mem)
				if ok && in.Op != x86asm.LEA && in.Op != x86asm.NOP &&
					(mem.Index != 0 || mem.Base != x86asm.RSP && mem.Base != x86asm.RIP && mem.Base != x86asm.R14) {
					t.Errorf("%s: %v at %#x moves", f.Name, in, r.Addr)
				}
			}
			o += in.Len
		}
	}
}

// TestUnlike: a program whose runtime has something in another form than those that are known is refused, with what that is.
func TestUnlike(t *testing.T) {
	other, err := elfio.Parse(unknown(t, "arm64", "../../testdata/gostress"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Read(other); !errors.As(err, new(*Refusal)) || !strings.Contains(err.Error(), "on AArch64 its code is not read") {
		t.Errorf("for AArch64: %v", err)
	}
	good := unknown(t, "amd64", "../../testdata/gostress")
	f, err := elfio.Parse(good)
	if err != nil {
		t.Fatal(err)
	}
	im, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) uint64 {
		for i := range im.Funcs {
			if im.Funcs[i].Name == name {
				return im.Funcs[i].Entry
			}
		}
		t.Fatalf("no %s", name)
		return 0
	}
	record := func(name string) []byte {
		f := im.Func(at(name))
		return f.rec[:RecSize:RecSize]
	}
	offset := func(addr uint64) int { // in the file
		for i := range f.Progs {
			if p := &f.Progs[i]; addr-p.Vaddr < p.Filesz {
				return int(addr - p.Vaddr + p.Off)
			}
		}
		t.Fatalf("%#x is not in the file", addr)
		return 0
	}
	code := func(name string, text ...byte) func(b []byte) {
		return func(b []byte) { copy(b[offset(at(name)):], text) }
	}
	ret := bytes.Repeat([]byte{0xc3}, 64)
	for _, tt := range []struct {
		name, want string
		change     func(b []byte)
	}{
		{"magic", "no header of this kind", func(b []byte) { b[offset(im.Pclntab)]-- }},
		{"moduledata", "has another form", func(b []byte) { b[offset(im.ModuleData)+mdMaxPC]++; b[offset(im.ModuleData)+mdMaxPC+2]++ }},
		{"systemstack", "runtime.systemstack goes", code("runtime.systemstack", ret...)},
		{"rt0", "runtime.rt0_go sets up", code("runtime.rt0_go", ret...)},
		{"settls", "thread-local memory", code("runtime.settls", ret...)},
		{"clone", "thread-local memory", code("runtime.clone", ret...)},
		{"header", "goroutineheader prints", code("runtime.goroutineheader", bytes.Repeat([]byte{0x90}, 2000)...)},
		{"thread-local", "uses other thread-local memory", code("main.leaf", 0x64, 0x48, 0x8b, 4, 0x25, 0, 0, 0, 0)},
		{"scratch register", "a register that recording needs", code("main.leaf", 0x4c, 0x89, 0xe0)}, // mov %r12, %rax
		{"return", "something on its stack", code("main.fib", 0x4c, 0x8b, 0x66, 0x10, 0x76, 0xfe, 0x55, 0xc3)},
		{"record", "deferred calls", func(b []byte) {
			rec := record("main.defers")
			b[bytes.Index(b, rec)+RecDeferReturn]++
		}},
	} {
		b := bytes.Clone(good)
		tt.change(b)
		changed, err := elfio.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Read(changed)
		if refused := new(Refusal); !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "linked by go1.9") {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
