package syscalls

import "bytes"

// Files, directories and descriptors.

// stat appends a struct stat, whose fields lie differently on each machine.
func (p *printer) stat(b []byte) {
	type layout struct{ mode, nlink, uid, gid, rdev, size, blksize, blocks, atime int }
	l := [machines]layout{
		AMD64: {mode: 24, nlink: 16, uid: 28, gid: 32, rdev: 40, size: 48, blksize: 56, blocks: 64, atime: 72},
		ARM64: {mode: 16, nlink: 20, uid: 24, gid: 28, rdev: 32, size: 48, blksize: 56, blocks: 64, atime: 72},
	}[p.Machine]
	nlink, blksize := le64(b[l.nlink:]), le64(b[l.blksize:])
	if p.Machine == ARM64 {
		nlink, blksize = uint64(le32(b[l.nlink:])), uint64(le32(b[l.blksize:]))
	}
	mode := uint64(le32(b[l.mode:]))
	p.str("{")
	p.field("st_dev")
	p.dev(le64(b))
	p.uintField("st_ino", le64(b[8:]))
	p.field("st_mode")
	p.fileMode(mode)
	p.uintField("st_nlink", nlink)
	p.uintField("st_uid", uint64(le32(b[l.uid:])))
	p.uintField("st_gid", uint64(le32(b[l.gid:])))
	p.uintField("st_blksize", blksize)
	p.uintField("st_blocks", le64(b[l.blocks:]))
	if typ := mode & 0o170000; typ == 0o20000 || typ == 0o60000 {
		p.field("st_rdev")
		p.dev(le64(b[l.rdev:]))
	} else {
		p.intField("st_size", int64(le64(b[l.size:])))
	}
	for i, name := range []string{"st_atime", "st_mtime", "st_ctime"} {
		sec, ns := int64(le64(b[l.atime+16*i:])), int64(le64(b[l.atime+16*i+8:]))
		p.intField(name, sec)
		p.date(sec, ns)
		if ns != 0 {
			p.intField(name+"_nsec", ns)
		}
	}
	p.str("}")
}

func (p *printer) statx(b []byte) {
	p.str("{")
	p.flagsField("stx_mask", "statx_mask", uint64(le32(b)))
	p.uintField("stx_blksize", uint64(le32(b[4:])))
	p.flagsField("stx_attributes", "statx_attr", le64(b[8:]))
	p.uintField("stx_nlink", uint64(le32(b[16:])))
	p.uintField("stx_uid", uint64(le32(b[20:])))
	p.uintField("stx_gid", uint64(le32(b[24:])))
	p.field("stx_mode")
	p.fileMode(uint64(le16(b[28:])))
	p.uintField("stx_ino", le64(b[32:]))
	p.uintField("stx_size", le64(b[40:]))
	p.uintField("stx_blocks", le64(b[48:]))
	p.flagsField("stx_attributes_mask", "statx_attr", le64(b[56:]))
	for i, name := range []string{"stx_atime", "stx_btime", "stx_ctime", "stx_mtime"} {
		const btime = 0x800
		if name == "stx_btime" && le32(b)&btime == 0 {
			continue
		}
		sec, ns := int64(le64(b[64+16*i:])), int64(le32(b[72+16*i:]))
		p.field(name)
		p.str("{")
		p.intField("tv_sec", sec)
		p.intField("tv_nsec", ns)
		p.str("}")
		p.date(sec, ns)
	}
	p.uintField("stx_rdev_major", uint64(le32(b[128:])))
	p.uintField("stx_rdev_minor", uint64(le32(b[132:])))
	p.uintField("stx_dev_major", uint64(le32(b[136:])))
	p.uintField("stx_dev_minor", uint64(le32(b[140:])))
	p.hexField("stx_mnt_id", le64(b[144:]))
	p.str("}")
}

func (p *printer) statfs(b []byte) {
	p.str("{")
	p.field("f_type")
	p.enum("fs_magic", le64(b))
	p.uintField("f_bsize", le64(b[8:]))
	p.uintField("f_blocks", le64(b[16:]))
	p.uintField("f_bfree", le64(b[24:]))
	p.uintField("f_bavail", le64(b[32:]))
	p.uintField("f_files", le64(b[40:]))
	p.uintField("f_ffree", le64(b[48:]))
	p.field("f_fsid")
	p.str("{val=[")
	p.hex(uint64(le32(b[56:])))
	p.str(", ")
	p.hex(uint64(le32(b[60:])))
	p.str("]}")
	p.uintField("f_namelen", le64(b[64:]))
	p.uintField("f_frsize", le64(b[72:]))
	p.flagsField("f_flags", "statfs", le64(b[80:]))
	p.str("}")
}

func (p *printer) openHow(b []byte) {
	p.str("{")
	p.field("flags")
	p.openFlags(le64(b))
	if mode := le64(b[8:]); le64(b)&(0o100|0o20000000) != 0 || mode != 0 {
		p.field("mode")
		p.permissions(mode)
	}
	p.flagsField("resolve", "resolve", le64(b[16:]))
	p.str("}")
}

func (p *printer) cachestatRange(b []byte) {
	p.str("{")
	p.uintField("off", le64(b))
	p.uintField("len", le64(b[8:]))
	p.str("}")
}

func (p *printer) cachestat(b []byte) {
	p.str("{")
	for i, name := range []string{"nr_cache", "nr_dirty", "nr_writeback", "nr_evicted", "nr_recently_evicted"} {
		p.uintField(name, le64(b[8*i:]))
	}
	p.str("}")
}

// dirents appends the entries of a directory, as far as their bytes are known.
func (p *printer) dirents(s *spec, v uint64) {
	n := p.elements(s)
	b, _ := p.mem.read(v, max(0, min(n, 2048)))
	if len(b) == 0 && n > 0 {
		p.address(v)
		return
	}
	const head64, head = 19, 18
	p.str("[")
	for i := 0; len(b) >= head64; i++ {
		size := int(le16(b[16:]))
		p.sep(i)
		if size < head64 || size > len(b) || i == MaxElements {
			p.str("...")
			break
		}
		name, typ := b[head:size-1], b[size-1]
		if s.kind == "dirents64" {
			name, typ = b[head64:size], b[18]
		}
		name, _, _ = bytes.Cut(name, []byte{0})
		p.str("{")
		p.uintField("d_ino", le64(b))
		p.intField("d_off", int64(le64(b[8:])))
		p.uintField("d_reclen", uint64(size))
		if s.kind == "dirents64" {
			p.field("d_type")
			p.enum("dirent_type", uint64(typ))
			p.field("d_name")
			p.b = appendQuoted(p.b, name)
		} else {
			p.field("d_name")
			p.b = appendQuoted(p.b, name)
			p.field("d_type")
			p.enum("dirent_type", uint64(typ))
		}
		p.str("}")
		b = b[size:]
		n -= size
	}
	if n > 0 && len(b) < head64 && len(b) != n {
		p.str(", ...")
	}
	p.str("]")
}

// fields of a struct utsname are 65 bytes.
func (p *printer) utsname(b []byte) {
	p.str("{")
	for i, name := range []string{"sysname", "nodename", "release", "version", "machine", "domainname"} {
		s, _, _ := bytes.Cut(b[65*i:65*i+65], []byte{0})
		p.field(name)
		p.b = appendQuoted(p.b, s)
	}
	p.str("}")
}

func (p *printer) sysinfo(b []byte) {
	p.str("{")
	p.uintField("uptime", le64(b))
	p.str(", loads=[")
	for i := range 3 {
		p.sep(i)
		p.uint(le64(b[8+8*i:]))
	}
	p.str("]")
	for i, name := range []string{"totalram", "freeram", "sharedram", "bufferram", "totalswap", "freeswap"} {
		p.uintField(name, le64(b[32+8*i:]))
	}
	p.uintField("procs", uint64(le16(b[80:])))
	p.uintField("totalhigh", le64(b[88:]))
	p.uintField("freehigh", le64(b[96:]))
	p.uintField("mem_unit", uint64(le32(b[104:])))
	p.str("}")
}
