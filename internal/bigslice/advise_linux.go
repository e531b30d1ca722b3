package bigslice

import "golang.org/x/sys/unix"

// hugePage is the alignment of huge pages on x86-64, and on arm64 with pages of 4 KiB. Where they are larger the advice
// covers less.
const hugePage = 2 << 20

// advise asks for huge pages wherever the memory touches one. Memory beside it may get some too, which costs nothing:
// it is the allocator's own. The kernel may refuse or ignore it.
func advise(addr, size uintptr) {
	from := addr &^ (hugePage - 1)
	to := (addr + size + hugePage - 1) &^ (hugePage - 1)
	unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_HUGEPAGE)
}
