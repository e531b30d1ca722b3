package tracee

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
)

// Libraries that the program loads later.
//
// Nobody traces the process then, so the runtime in it asks the recorder (stub/src/amd64/loader.c). It has to come to
// know that the loader has opened a file: the loader's code is changed at the exec stop, before it runs. It opens files
// by a handful of functions, in each of which glibc has
//
//	b8 01 01 00 00        mov  $0x101, %eax   (openat)
//	...                   moves of arguments
//	0f 05                 syscall
//	48 3d 00 f0 ff ff     cmp  $-4096, %rax
//	77 xx                 ja   ...
//
// The last two but one become a jump to a stub of the same instructions, in a page of its own below the loader, as the
// runtime is farther away than a jump reaches. The stub goes on to the runtime if the call has succeeded, but only
// when the program begins: before, this process substitutes files itself, which needs no answer in time.
//
// The recorder must not change code that something else jumps into: where any bytes of the loader could be a branch to
// the middle of the eight, they are left alone, and so are loaders that do not look like this (musl's is also the C
// library, so that all that the program opens would come by).

const (
	stubSize = 64
	stubSlot = 32 // of a stub: the address that it goes on to
)

var (
	openatNumber = []byte{0xb8, 0x01, 0x01, 0x00, 0x00}                   // mov $0x101, %eax
	callAndCheck = []byte{0x0f, 0x05, 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff} // syscall; cmp $-4096, %rax
)

// hook changes the loader's code so that it comes to the routine of the runtime when it has opened a file. enable has to
// be called for that to begin.
func (l *loader) hook(routine uint64) (enable func() error, err error) {
	var sites []uint64
	for _, s := range l.code {
		b := make([]byte, s.size)
		if err := l.t.ReadAt(b, s.addr); err != nil {
			return nil, err
		}
		for _, at := range findOpens(b) {
			sites = append(sites, s.addr+uint64(at))
		}
	}
	if len(sites) == 0 {
		return nil, errors.New("its dynamic loader opens files in an unknown way")
	}
	size := pageUp(uint64(len(sites) * stubSize))
	page, err := l.page(size)
	if err != nil {
		return nil, err
	}
	l.stubs = span{page, size}
	var stubs []byte
	var edits []arch.Edit
	for i, site := range sites {
		at := page + uint64(i*stubSize)
		stubs = append(stubs, openStub(at, site)...)
		jmp := append(le.AppendUint32([]byte{0xe9}, uint32(at-(site+5))), 0x0f, 0x1f, 0x00) // jmp stub; nopl (%rax)
		edits = append(edits, arch.Edit{Addr: site, Old: callAndCheck, New: jmp})
	}
	if err := l.t.WriteAt(stubs, page); err != nil {
		return nil, err
	}
	if err := arch.Compare(l.t, PageSize, arch.All(edits)); err != nil {
		return nil, err
	}
	if err := arch.Write(l.t, PageSize, edits); err != nil {
		return nil, err
	}
	return func() error {
		for i := range sites {
			if err := l.t.WriteAt(le.AppendUint64(nil, routine), page+uint64(i*stubSize)+stubSlot); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// openStub is the code at addr for a system call that was at site.
func openStub(addr, site uint64) []byte {
	const (
		back = 23 // where it goes on if the call has failed, or nothing is to be done
		slot = stubSlot
	)
	next := site + uint64(len(callAndCheck))
	b := slices.Clone(callAndCheck)
	b = append(b, 0x77, back-10)                                             // ja back
	b = le.AppendUint32(append(b, 0x4c, 0x8d, 0x1d), uint32(next-(addr+17))) // lea next(%rip), %r11
	b = le.AppendUint32(append(b, 0xff, 0x25), slot-23)                      // jmp *slot(%rip)
	b = le.AppendUint32(append(b, 0xe9), uint32(next-(addr+back+5)))         // back: jmp next
	b = append(b, bytes.Repeat([]byte{0xcc}, slot-len(b))...)                // int3
	b = le.AppendUint64(b, addr+back)                                        // slot
	return append(b, make([]byte, stubSize-len(b))...)
}

// page maps memory close to the loader, below it, where branches reach it.
func (l *loader) page(size uint64) (uint64, error) {
	const tries, step = 64, 1 << 20
	var err error
	for i := range uint64(tries) {
		at := l.from - (i+1)*step
		if err = l.t.mmap(at, size, unix.PROT_READ|unix.PROT_EXEC); err == nil {
			return at, nil
		}
	}
	return 0, fmt.Errorf("no memory close to its dynamic loader: %w", err)
}

// findOpens returns where in code files are opened, by the offset of callAndCheck, as far as nothing can branch into it.
func findOpens(code []byte) (at []int) {
	const moves = 16 // most bytes between the number and the call
	for from := 0; ; {
		i := bytes.Index(code[from:], callAndCheck)
		if i < 0 {
			break
		}
		i += from
		from = i + 1
		head := code[max(0, i-moves-len(openatNumber)):i]
		if k := bytes.LastIndex(head, openatNumber); k >= 0 && !bytes.Contains(head[k:], callAndCheck[:2]) {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return nil
	}
	into := make(map[int]bool) // offsets behind the first byte of what was found, that something could branch to
	for i := range code {
		to, ok := branch(code[i:])
		if k, found := slices.BinarySearch(at, i+to); ok && !found && k > 0 && i+to < at[k-1]+len(callAndCheck) {
			into[at[k-1]] = true
		}
	}
	return slices.DeleteFunc(at, func(i int) bool { return into[i] })
}

// branch returns how far from b the instruction goes that begins there, if it is a direct branch.
func branch(b []byte) (to int, ok bool) {
	rel := func(n int, wide bool) (int, bool) {
		switch {
		case wide && len(b) >= n+4:
			return n + 4 + int(int32(le.Uint32(b[n:]))), true
		case !wide && len(b) > n:
			return n + 1 + int(int8(b[n])), true
		}
		return 0, false
	}
	switch op := b[0]; {
	case op >= 0x70 && op <= 0x7f, op >= 0xe0 && op <= 0xe3, op == 0xeb:
		return rel(1, false)
	case op == 0xe8, op == 0xe9:
		return rel(1, true)
	case op == 0x0f && len(b) > 1 && b[1] >= 0x80 && b[1] <= 0x8f:
		return rel(2, true)
	}
	return 0, false
}
