package procfs

import (
	"bytes"
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A mapQuery is a struct procmap_query (include/uapi/linux/fs.h), of Linux 6.11: which mapping is at an address, or the next one of a
// kind. A process can have hundreds, of which few are shared.
type mapQuery struct {
	size, flags, addr       uint64
	start, end, perms, page uint64
	offset, inode           uint64
	major, minor            uint32
	nameSize, buildIDSize   uint32
	name                    unsafe.Pointer
	buildID                 uint64
}

const (
	queryMap                               = 0xc0686611 // PROCMAP_QUERY
	mapShared, mapOrNext, mapOfFile uint64 = 0x08, 0x10, 0x20
)

// errNoQuery: this kernel does not answer, or not of this process.
var errNoQuery = errors.New("mappings cannot be asked for")

// query looks for the file in a process's maps file by asking for what is shared.
func (f SharedFile) query(maps *os.File) (mapped bool, err error) {
	name := make([]byte, unix.PathMax)
	for addr := uint64(0); ; {
		q := mapQuery{flags: mapShared | mapOrNext | mapOfFile, addr: addr}
		q.size, q.nameSize, q.name = uint64(unsafe.Sizeof(q)), uint32(len(name)), unsafe.Pointer(&name[0])
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, maps.Fd(), queryMap, uintptr(unsafe.Pointer(&q)))
		switch {
		case errno == unix.ENOENT:
			return false, nil
		case errno == unix.EINTR:
			continue
		case errno != 0 || q.end <= addr || q.nameSize > uint32(len(name)):
			return false, errNoQuery
		}
		if q.inode == f.Inode && string(bytes.TrimSuffix(name[:q.nameSize], []byte{0})) == f.Path {
			return true, nil
		}
		addr = q.end
	}
}
