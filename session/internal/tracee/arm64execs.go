//go:build linux

package tracee

import (
	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/arm64"
)

// On arm64 a program is executed by
//
//	mov  x8, #221         (execve; 281, execveat; 167, prctl; 277, seccomp; or what syscall is called with: mov w8, w0)
//	svc  #0
//
// with a few instructions between the two where a compiler has put them there. The second one becomes a branch to a stub,
// which makes the call itself, as no register says where to come back. If the call is one that is recorded, its copies
// (arch/arm64) are what changes; a function that is traced can have its first instruction elsewhere, with a branch that leads
// on from there.

const (
	arm64StubSize = 32
	// arm64Between bounds how many instructions are between the two.
	arm64Between = 12
)

// arm64ExecNumbers are those of execve, execveat, prctl and seccomp, and of whatever is called by number.
var arm64ExecNumbers = []uint32{221, 281, 167, 277, anyNumber}

// arm64Loads tells whether an instruction loads the number of a system call.
func arm64Loads(w, nr uint32) bool {
	const mov = 0x2a0003e8 // mov w8, w0; with bit 31 mov x8, x0
	if nr == anyNumber {
		return w&^(1<<31) == mov
	}
	return w&^(1<<31) == 0x52800008|nr<<5 // mov w8 or x8, #nr
}

// arm64FindExecs returns where programs are executed in code: the instructions that make the call. at reads from the memory
// that it lies in, far behind the code's beginning or before it.
func arm64FindExecs(code []byte, at func(b []byte, far int64) error) (sites []execSite) {
	word := func(far int64) uint32 {
		var b [arm64.InstLen]byte
		if far >= 0 && far+arm64.InstLen <= int64(len(code)) {
			copy(b[:], code[far:])
		} else if at(b[:], far) != nil {
			return 0
		}
		return le.Uint32(b[:])
	}
	for i := int64(0); i+arm64.InstLen <= int64(len(code)); i += arm64.InstLen {
		for _, nr := range arm64ExecNumbers {
			if !arm64Loads(le.Uint32(code[i:]), nr) {
				continue
			}
			for _, far := range arm64CallsBehind(word, i+arm64.InstLen) {
				sites = append(sites, execSite{uint64(far), nr})
			}
		}
	}
	return sites
}

// arm64CallsBehind returns where a system call is made by code from an offset on, with the number that is in x8 there.
func arm64CallsBehind(word func(far int64) uint32, far int64) []int64 {
	for n, jumps := 0, 0; n < arm64Between; n++ {
		w := word(far)
		switch {
		case w == arm64.WordSvc:
			return []int64{far}
		case w>>26 == 5: // b
			if far += int64(int32(w<<6)) >> 4; jumps == 2 {
				return nil
			}
			jumps++
			if calls := arm64CallsInCopy(word, far); calls != nil {
				return calls
			}
			continue
		case w>>26&0x1f == 5, w>>26&0x1f == 0xd, w>>24 == 0x54, w>>25 == 0x6b, w>>24 == 0xd4, // bl, cbz or tbz, b.cond, br, brk
			w == 0, w&0x1f == 8: // it can change x8
			return nil
		}
		far += arm64.InstLen
	}
	return nil
}

// arm64CallsInCopy returns the two system calls of a copy that begins at an offset; nil: there is none.
func arm64CallsInCopy(word func(far int64) uint32, far int64) []int64 {
	const recorded, other = 3 * arm64.InstLen, 9 * arm64.InstLen
	var c arm64.SyscallCopy
	like, err := c.Append(nil, 0)
	if err != nil {
		return nil
	}
	for i := 0; i < len(like); i += arm64.InstLen {
		w, want := word(far+int64(i)), le.Uint32(like[i:])
		if branch := w>>26 == want>>26 && w>>26&0x1f == 5; w != want && !branch {
			return nil
		}
	}
	return []int64{far + recorded, far + other}
}

// arm64ExecStubs returns what is to be on the page at an address, and the branches that lead there.
func arm64ExecStubs(page, routine uint64, sites []execSite) (stubs []byte, edits []arch.Edit) {
	for _, s := range sites {
		at := page + uint64(len(stubs))
		if uint64(len(stubs)+arm64StubSize) > PageSize {
			break
		}
		jump, err := arm64.AppendJump(nil, s.at, at)
		if err != nil {
			continue // farther than a branch reaches
		}
		b := make([]byte, 0, arm64StubSize)
		for _, w := range []uint32{
			0xa9bf7bf0, // stp x16, x30, [sp, #-16]!
			0x580000b0, // ldr x16, routine
			0xd63f0200, // blr x16
			0xa8c17bf0, // ldp x16, x30, [sp], #16
			arm64.WordSvc,
		} {
			b = le.AppendUint32(b, w)
		}
		if b, err = arm64.AppendJump(b, at+uint64(len(b)), s.at+arm64.InstLen); err != nil {
			continue
		}
		stubs = append(stubs, le.AppendUint64(b, routine)...)
		edits = append(edits, arch.Edit{Addr: s.at, Old: le.AppendUint32(nil, arm64.WordSvc), New: jump})
	}
	return stubs, edits
}
