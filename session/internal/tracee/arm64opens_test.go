//go:build linux && (amd64 || arm64)

package tracee

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/arch/arm64"
)

// Where files are opened is found, and nothing else.
func TestFindOpensARM64(t *testing.T) {
	const openat, check, nop = 0xd2800708, 0xb140041f, 0xd503201f
	for _, tt := range []struct {
		name string
		code []byte
		want []int
	}{
		{"glibc", code(nop, openat, arm64.WordSvc, check), []int{8}},
		{"another check, 32 bits", code(0x52800708, nop, nop, arm64.WordSvc, 0xb13ffc1f), []int{12}},
		{"two ways to one", code(openat, 0x14000003, nop, openat, arm64.WordSvc, check), []int{16}},
		{"not checked", code(openat, arm64.WordSvc, nop), nil},
		{"another call", code(0xd2800728, arm64.WordSvc, check), nil},
		{"another number meanwhile", code(openat, 0xd2800728, arm64.WordSvc, check), nil},
		{"cut off", code(openat, arm64.WordSvc), nil},
	} {
		if got := arm64FindOpens(tt.code); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Calls of open are found by where they go, and by what they are to open.
func TestFindCallsARM64(t *testing.T) {
	const nop, open = 0xd503201f, 0x40
	call := func(at, to uint32) uint32 { return 0x94000000 | (to-at)>>2&0x3ffffff }
	for _, tt := range []struct {
		name string
		code []byte
		want []int
	}{
		{"nothing", code(nop), nil},
		{"one", code(arm64ReadOnly, nop, call(8, open)), []int{8}},
		{"back", code(arm64ReadOnly, call(4, open)), []int{4}},
		{"for something else", code(arm64ReadOnly+1<<5, call(4, open)), nil},
		{"another function", code(arm64ReadOnly, call(4, open+4)), nil},
		{"far away", code(arm64ReadOnly, nop, nop, nop, nop, nop, nop, call(28, open)), nil},
		{"cut off", code(arm64ReadOnly, call(4, open))[:6], nil},
	} {
		if got := arm64FindCalls(tt.code, open); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The places where glibc's loader opens files are found.
func TestFindOpensOfLoaderARM64(t *testing.T) {
	f, err := elf.Open(filepath.Join("/usr/aarch64-linux-gnu/lib", "ld-linux-aarch64.so.1"))
	if os.IsNotExist(err) {
		t.Skip("apt-get install libc6-arm64-cross")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	if got := arm64FindOpens(b); len(got) == 0 || len(got) > 8 {
		t.Errorf("%v", got)
	}
}

// A stub is as large as its layout says, and its parts are where that says.
func TestStubsARM64(t *testing.T) {
	const addr, site, open = 0x100000, 0x200000, 0x210000
	word := func(b []byte, at uint64) uint32 { return le.Uint32(b[at:]) }
	// loaded is where the word is that ldr x16 loads.
	loaded := func(b []byte) (from uint64) {
		for at := uint64(0); at < uint64(len(b)); at += arm64.InstLen {
			if w := word(b, at); w&0xff00001f == 0x58000010 {
				from = at + uint64(w>>5&0x7ffff)*arm64.InstLen
			}
		}
		return from
	}
	for _, w := range []ways{{}, {enter: addr + 0x1000, exit: addr + 0x1010}} {
		b, e, err := arm64OpenStub(addr, site, w)
		l := arm64OpenLayout
		switch {
		case err != nil:
			t.Fatal(err)
		case uint64(len(b)) != l.size, word(b, l.trap) != arm64Trap, word(b, l.back) != arm64Ret, l.back != l.trap+4,
			le.Uint64(b[l.slot:]) != addr+l.trap, l.slot%8 != 0, loaded(b) != l.slot:
			t.Errorf("%+v: %x", w, b)
		case e.Addr != site || !slices.Equal(e.Old, code(arm64.WordSvc)):
			t.Errorf("%+v", e)
		}
	}
	b, e, err := arm64CallStub(addr, site, open)
	l := arm64CallLayout
	if err != nil || uint64(len(b)) != l.size || word(b, l.back) != arm64Ret || le.Uint64(b[l.slot:]) != addr+l.back || loaded(b) != l.slot ||
		e.Addr != site {
		t.Errorf("%v: %x, %+v", err, b, e)
	}
}
