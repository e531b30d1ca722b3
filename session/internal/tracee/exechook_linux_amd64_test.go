package tracee

import (
	"bytes"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/arch"
)

// Every form in which programs are executed is found, and nothing else.
func TestFindExecs(t *testing.T) {
	const execve, execveat = "\xb8\x3b\x00\x00\x00", "\xb8\x42\x01\x00\x00"
	const call, behind = "\x0f\x05", "\x48\x3d\x01\xf0\xff\xff\x73\x01\xc3"
	const recorded = "\x48\x8d\x0d\x05\x00\x00\x00\xe9\x10\x20\x00\x00" + call
	for _, tt := range []struct {
		name, code string
		want       []execSite
	}{
		{"glibc", "\xf3\x0f\x1e\xfa" + execve + call + behind, []execSite{{4, 59}}},
		{"musl", execve + call + "\x48\x89\xc7", []execSite{{0, 59}}},
		{"both", execve + call + behind + execveat + call + behind, []execSite{{0, 59}, {16, 322}}},
		{"displaced", execve + "\xe9\x04\x00\x00\x00" + "\xcc\xcc\xcc\xcc" + call + behind + behind, []execSite{{0, 59}}},
		{"recorded", execve + recorded + behind, []execSite{{0, 59}}},
		{"recorded elsewhere", execve + "\xe9\x01\x00\x00\x00\xcc" + recorded, []execSite{{0, 59}}},
		{"recorded, displaced", execve + "\xe9\x03\x00\x00\x00" + behind[:3] + "\xe9\x02\x00\x00\x00\xcc\xcc" + recorded, []execSite{{0, 59}}},
		{"syscall", "\x4d\x89\xc8\x4c\x8b\x4c\x24\x08" + call + behind, []execSite{{3, anyNumber}}},
		{"prctl and seccomp", "\xb8\x9d\x00\x00\x00" + call + behind + "\xb8\x3d\x01\x00\x00" + call + behind, []execSite{{0, 157}, {16, 317}}},
		{"round and round", execve + "\xe9\xfb\xff\xff\xff" + behind + behind, nil},
		{"another call", "\xb8\x39\x00\x00\x00" + call + behind, nil},
		{"another register", "\x41" + execve + call + behind, nil},
		{"no call", execve + "\xc3", nil},
		{"a jump to something else", execve + "\xe9\x00\x00\x00\x00\x90\x90", nil},
		{"a jump to nothing", execve + "\xe9\x00\x00\x00\x70", nil},
		{"cut off", execve + "\xe9\x00", nil},
		{"cut off in the call", execve + "\x0f", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code := []byte(tt.code)
			if got := findExecs(code, memoryOf(code)); !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// A stub loads the number, says where to go on, and goes to the routine; the jumps are where the numbers were loaded.
func TestExecStubs(t *testing.T) {
	const page, routine = 0x7f0000000000, 0x123456789abc
	sites := []execSite{{page + 0x100000, 59}, {page + 0x200010, 322}, {page + 1<<32, 59}}
	stubs, edits := execStubs(page, routine, sites)
	if len(stubs) != 2*execStubSize || len(edits) != 2 {
		t.Fatalf("%d bytes, %d edits: one site is too far away", len(stubs), len(edits))
	}
	want := []byte("\xb8\x3b\x00\x00\x00" + // mov $59, %eax
		"\x4c\x8d\x1d\xf9\xff\x0f\x00" + // lea 0xffff9(%rip), %r11
		"\xff\x25\x06\x00\x00\x00" + // jmp *6(%rip)
		"\x00\x00\x00\x00\x00\x00" + "\xbc\x9a\x78\x56\x34\x12\x00\x00")
	if !bytes.Equal(stubs[:execStubSize], want) {
		t.Errorf("% x, want % x", stubs[:execStubSize], want)
	}
	any, edits := execStubs(page, routine, []execSite{{page + 0x100000, anyNumber}})
	if mov := []byte("\x4c\x8b\x4c\x24\x08"); !bytes.Equal(any[:5], mov) || !bytes.Equal(edits[0].Old, mov) {
		t.Errorf("% x in place of % x", any[:5], edits[0].Old)
	}
	_, edits = execStubs(page, routine, sites)
	jump := arch.Edit{Addr: page + 0x100000, Old: want[:5], New: []byte("\xe9\xfb\xff\xef\xff")}
	if got := edits[0]; got.Addr != jump.Addr || !bytes.Equal(got.Old, jump.Old) || !bytes.Equal(got.New, jump.New) {
		t.Errorf("%+v, want %+v", got, jump)
	}
}

func FuzzFindExecs(f *testing.F) {
	f.Add([]byte("\xb8\x3b\x00\x00\x00\x0f\x05\x48"))
	f.Add([]byte("\x4c\x8b\x4c\x24\x08\x0f\x05\x48"))
	f.Add([]byte("\xb8\x42\x01\x00\x00\xe9\x00\x00\x00\x00\x0f\x05\x48"))
	f.Add([]byte("\xb8\x3b\x00\x00\x00\x48\x8d\x0d\x05\x00\x00\x00\xe9\x10\x20\x00\x00\x0f\x05"))
	f.Fuzz(func(t *testing.T, code []byte) {
		for _, s := range findExecs(code, memoryOf(code)) {
			if s.at+5 > uint64(len(code)) || !bytes.HasPrefix(code[s.at:], s.load()) {
				t.Errorf("at %d of %d bytes", s.at, len(code))
			}
		}
	})
}
