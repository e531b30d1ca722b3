//go:build linux

package limits

import (
	"bytes"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// None is no limit.
const None = math.MaxInt64

// A Limit is the most of something that the process can have.
type Limit struct {
	Bytes int64  // None if there is none
	From  string // what says so, for people
}

// Memory is the least limit that control groups set for the memory of this process, of
// either version. root is the file system.
//
// A process is in one group of each hierarchy (/proc/self/cgroup), which limits it, and so
// do all groups above that one, as far as they are visible: /proc/self/mountinfo says where
// hierarchies are, and which group is at the top there.
func Memory(root fs.FS) Limit {
	l := Limit{Bytes: None}
	inGroups(root, "self", func(h *hierarchy, dir string) {
		file := path.Join(h.mount, dir, h.file)
		if n, ok := readLimit(root, file); ok && n < l.Bytes {
			l = Limit{n, file}
		}
	})
	return l
}

// Room is how much more memory control groups let a process have before the kernel kills it, or another one of its groups, as
// far as that can be known: what is in use and can be had by writing or dropping it is none. Where there is swap there is no limit.
func Room(root fs.FS, pid int) Limit {
	l := Limit{Bytes: None}
	if swap, ok := readFields(root, "/proc/meminfo", "SwapTotal:"); !ok || swap > 0 {
		return l
	}
	inGroups(root, strconv.Itoa(pid), func(h *hierarchy, dir string) {
		file := path.Join(h.mount, dir, h.file)
		most, limited := readLimit(root, file)
		used, known := readLimit(root, path.Join(h.mount, dir, h.used))
		if !limited || !known {
			return
		}
		reclaimed, _ := readFields(root, path.Join(h.mount, dir, "memory.stat"), h.reclaimed...)
		if n := max(0, most-max(0, used-reclaimed)); n < l.Bytes {
			l = Limit{n, file}
		}
	})
	return l
}

// readFields adds numbers of a file with a name and a number on each line; ok is false if it has none of them.
func readFields(root fs.FS, file string, names ...string) (sum int64, ok bool) {
	b, err := fs.ReadFile(root, strings.TrimPrefix(file, "/"))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 || !slices.Contains(names, f[0]) {
			continue
		}
		if n, err := strconv.ParseInt(f[1], 10, 64); err == nil && n >= 0 {
			sum, ok = sum+n, true
		}
	}
	return sum, ok
}

// inGroups visits the groups of a process, and those above them, as far as they are visible.
func inGroups(root fs.FS, process string, visit func(h *hierarchy, dir string)) {
	groups, err := fs.ReadFile(root, "proc/"+process+"/cgroup")
	if err != nil {
		return
	}
	mounts, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return
	}
	for _, h := range hierarchies(mounts) {
		group, ok := strings.CutPrefix(groupIn(groups, h.controller), h.top)
		if !ok {
			continue
		}
		for dir := path.Join("/", group); ; dir = path.Dir(dir) {
			if visit(&h, dir); dir == "/" {
				break
			}
		}
	}
}

// hierarchy is a place where control groups that limit memory are mounted.
type hierarchy struct {
	mount, top string // where it is, and which group is there ("" for the root)
	controller string // as in /proc/self/cgroup
	file, used string // with the limit, and with what is in use
	reclaimed  []string
}

// hierarchies finds them. A line of mountinfo is
//
//	36 35 0:31 /top /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
func hierarchies(mounts []byte) (found []hierarchy) {
	for line := range bytes.Lines(mounts) {
		before, after, ok := strings.Cut(string(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		h := hierarchy{mount: f[4], top: strings.TrimSuffix(f[3], "/")}
		switch {
		case g[0] == "cgroup2":
			h.file, h.used = "memory.max", "memory.current"
			h.reclaimed = []string{"inactive_file", "active_file", "slab_reclaimable"}
		case g[0] == "cgroup" && strings.Contains(","+g[2]+",", ",memory,"):
			h.controller, h.file, h.used = "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
			h.reclaimed = []string{"total_inactive_file", "total_active_file"}
		default:
			continue
		}
		found = append(found, h)
	}
	return found
}

// groupIn finds the process's group in a hierarchy: a line is NUMBER:CONTROLLERS:GROUP.
func groupIn(groups []byte, controller string) string {
	for line := range bytes.Lines(groups) {
		f := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(f) == 3 && (f[1] == controller || controller != "" && strings.Contains(","+f[1]+",", ","+controller+",")) {
			return f[2]
		}
	}
	return ""
}

// readLimit reads a file of a control group; ok is false if it says that there is no limit.
func readLimit(root fs.FS, file string) (n int64, ok bool) {
	b, err := fs.ReadFile(root, strings.TrimPrefix(file, "/"))
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil && n >= 0
}

// AddressSpace is how much more address space the process can have (ulimit -v).
func AddressSpace(root fs.FS) Limit {
	l := Limit{None, "ulimit -v"}
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &lim) != nil || lim.Cur > math.MaxInt64 {
		return l
	}
	l.Bytes = int64(lim.Cur)
	b, err := fs.ReadFile(root, "proc/self/statm") // the first field is pages of address space
	if err != nil {
		return l
	}
	if f := strings.Fields(string(b)); len(f) > 0 {
		if pages, err := strconv.ParseInt(f[0], 10, 64); err == nil {
			l.Bytes = max(0, l.Bytes-pages*int64(unix.Getpagesize()))
		}
	}
	return l
}

// FileSize is the largest file that the process can make (ulimit -f).
func FileSize() Limit {
	l := Limit{None, "ulimit -f"}
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &lim) == nil && lim.Cur < math.MaxInt64 {
		l.Bytes = int64(lim.Cur)
	}
	return l
}
