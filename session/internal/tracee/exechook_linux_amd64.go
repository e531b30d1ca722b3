package tracee

import (
	"bytes"

	"github.com/fentry-dev/fentry/arch"
)

// The instructions by which programs are executed are, in glibc, musl and all that is compiled from C,
//
//	b8 3b 00 00 00        mov  $59, %eax    (execve; 322, execveat; 157, prctl; 317, seccomp)
//	0f 05                 syscall
//	48 ..                 cmp  $-4096, %rax; mov %rax, %rdi; ...
//
// Eight bytes of which seven are fixed are nothing else, nor the inside of anything else: as a constant of eight bytes
// they would be the address of nothing, and no instruction has more constants than that. The first instruction becomes a
// jump to a stub, which says where to go on, and which number to load; a branch to the call behind it is as before. In a
// patched copy of a library the function may be a traced one: then the call is somewhere else, and a jump leads there. Or
// the call is one that is recorded: then it is behind a jump to the runtime, and an instruction that says where to come
// back.

// In glibc's syscall the number is what it is called with, and the last argument is loaded in front of the call:
//
//	4c 8b 4c 24 08        mov  8(%rsp), %r9
//	0f 05                 syscall
//	48 ..

// Follows: the runtime of this machine asks before it executes a program.
const Follows = true

const execStubSize = 32

// execReach is how far a jump may lead to the page with the stubs.
const execReach = 1 << 30

// execNumbers are those of execve, execveat, prctl and seccomp, and of whatever is called by number.
var execNumbers = []uint32{59, 322, 157, 317, anyNumber}

// load returns the instruction in front of the call.
func (s execSite) load() []byte {
	if s.nr == anyNumber {
		return []byte{0x4c, 0x8b, 0x4c, 0x24, 0x08} // mov 8(%rsp), %r9
	}
	return le.AppendUint32([]byte{0xb8}, s.nr) // mov $nr, %eax
}

// findExecs returns where programs are executed in code, or system calls can come to be filtered. at reads from the memory that it lies in, far behind the code's
// beginning or before it.
func findExecs(code []byte, at func(b []byte, far int64) error) (sites []execSite) {
	for _, nr := range execNumbers {
		load := execSite{nr: nr}.load()
		for from := 0; ; {
			i := bytes.Index(code[from:], load)
			if i < 0 {
				break
			}
			i += from
			from = i + 1
			if nr != anyNumber && i > 0 && code[i-1]&0xf1 == 0x41 {
				continue // mov $nr, %r8d
			}
			if calls(code[i+len(load):]) || leadsToCall(code, i+len(load), at) {
				sites = append(sites, execSite{uint64(i), nr})
			}
		}
	}
	return sites
}

var (
	callInsn = []byte{0x0f, 0x05}                               // syscall
	wayBack  = []byte{0x48, 0x8d, 0x0d, 0x05, 0x00, 0x00, 0x00} // lea 5(%rip), %rcx: behind a jump
)

// calls tells whether code begins with a system call, or with one that is recorded.
func calls(code []byte) bool {
	if recorded := len(wayBack) + jumpLen; bytes.HasPrefix(code, wayBack) && len(code) > recorded && code[len(wayBack)] == jumpOp {
		return bytes.HasPrefix(code[recorded:], callInsn)
	}
	return bytes.HasPrefix(code, callInsn) && len(code) > len(callInsn) && code[len(callInsn)] == 0x48
}

const (
	jumpOp  = 0xe9 // jmp
	jumpLen = 5
)

// leadsToCall tells whether there is a jump at an offset that leads to a system call. Of a function that is traced it leads
// to where the call was, and if that is recorded, another one leads on from there.
func leadsToCall(code []byte, i int, at func([]byte, int64) error) bool {
	if i+jumpLen > len(code) {
		return false
	}
	there, far := append([]byte(nil), code[i:i+jumpLen]...), int64(i)
	for range 2 {
		if there[0] != jumpOp {
			return false
		}
		far += jumpLen + int64(int32(le.Uint32(there[1:])))
		there = make([]byte, len(wayBack)+jumpLen+len(callInsn))
		if at(there, far) != nil {
			return false
		}
		if calls(there) {
			return true
		}
	}
	return false
}

// execStubs returns what is to be on the page at an address, and the jumps that lead there.
func execStubs(page, routine uint64, sites []execSite) (stubs []byte, edits []arch.Edit) {
	for _, s := range sites {
		at := page + uint64(len(stubs))
		const reach = 1<<31 - 1<<20
		if far := int64(s.at - at); uint64(len(stubs)+execStubSize) > PageSize || far > reach || far < -reach {
			continue // farther than a jump reaches
		}
		old := s.load()
		back := s.at + uint64(len(old))
		b := append([]byte(nil), old...)
		b = le.AppendUint32(append(b, 0x4c, 0x8d, 0x1d), uint32(back-(at+12))) // lea back(%rip), %r11
		b = le.AppendUint32(append(b, 0xff, 0x25), 6)                          // jmp *24(%rip)
		b = append(b, make([]byte, execStubSize-8-len(b))...)                  // up to 24
		b = le.AppendUint64(b, routine)                                        // where to
		jmp := le.AppendUint32([]byte{0xe9}, uint32(at-back))                  // jmp stub
		stubs = append(stubs, b...)
		edits = append(edits, arch.Edit{Addr: s.at, Old: old, New: jmp})
	}
	return stubs, edits
}
