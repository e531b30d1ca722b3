//go:build linux

package limits

import (
	"os"
	"testing"
	"testing/fstest"
)

const unlimited = "9223372036854771712\n" // of version 1: as many pages as there can be

func TestMemory(t *testing.T) {
	const (
		v1 = "30 25 0:29 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n"
		v2 = "31 25 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
		// A container sees its own group as the top.
		inside = "32 25 0:30 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
	)
	for _, tt := range []struct {
		name, groups, mounts string
		files                map[string]string
		want                 Limit
	}{
		{"none", "0::/\n", v2, nil, Limit{None, ""}},
		{"no control groups", "", "", nil, Limit{None, ""}},
		{"version 2", "0::/a/b\n", v2, map[string]string{"sys/fs/cgroup/a/b/memory.max": "16777216\n"},
			Limit{16 << 20, "/sys/fs/cgroup/a/b/memory.max"}},
		{"unlimited", "0::/a\n", v2, map[string]string{"sys/fs/cgroup/a/memory.max": "max\n"}, Limit{None, ""}},
		{"one above", "0::/a/b\n", v2, map[string]string{
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "1000\n",
		}, Limit{1000, "/sys/fs/cgroup/a/memory.max"}},
		{"container", "0::/docker/abc\n", inside, map[string]string{"sys/fs/cgroup/memory.max": "4096\n"},
			Limit{4096, "/sys/fs/cgroup/memory.max"}},
		{"outside of the mount", "0::/other\n", inside, map[string]string{"sys/fs/cgroup/memory.max": "4096\n"},
			Limit{None, ""}},
		{"version 1", "5:cpu,memory:/x\n0::/\n", v1 + v2, map[string]string{
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "8192\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   unlimited,
		}, Limit{8192, "/sys/fs/cgroup/memory/x/memory.limit_in_bytes"}},
		{"nonsense", "x\n::\n0::/a\n", v2 + "a - b\n - \n\n", map[string]string{"sys/fs/cgroup/a/memory.max": "-5x\n"},
			Limit{None, ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := fstest.MapFS{
				"proc/self/cgroup":    {Data: []byte(tt.groups)},
				"proc/self/mountinfo": {Data: []byte(tt.mounts)},
			}
			for name, text := range tt.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if l := Memory(root); l != tt.want {
				t.Errorf("%+v, want %+v", l, tt.want)
			}
		})
	}
}

func TestRoom(t *testing.T) {
	const (
		v1   = "30 25 0:29 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n"
		v2   = "31 25 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
		none = "MemTotal: 5 kB\nSwapTotal:       0 kB\n"
	)
	stat := "anon 1\nactive_file 100\ninactive_file 20\nslab_reclaimable 3\ntotal_active_file 1000\ntotal_inactive_file 200\n"
	for _, tt := range []struct {
		name, groups, mounts, memory string
		files                        map[string]string
		want                         Limit
	}{
		{"version 2", "0::/a/b\n", v2, none, map[string]string{"a/b/memory.max": "5000\n", "a/b/memory.current": "4123\n", "a/b/memory.stat": stat},
			Limit{1000, "/sys/fs/cgroup/a/b/memory.max"}},
		{"one above has less", "0::/a/b\n", v2, none, map[string]string{"a/b/memory.max": "5000\n", "a/b/memory.current": "0\n",
			"a/memory.max": "6000", "a/memory.current": "5500"}, Limit{500, "/sys/fs/cgroup/a/memory.max"}},
		{"full", "0::/a\n", v2, none, map[string]string{"a/memory.max": "5000\n", "a/memory.current": "9000\n"},
			Limit{0, "/sys/fs/cgroup/a/memory.max"}},
		{"unlimited", "0::/a\n", v2, none, map[string]string{"a/memory.max": "max\n", "a/memory.current": "9000\n"}, Limit{None, ""}},
		{"swap", "0::/a\n", v2, "SwapTotal: 10 kB\n", map[string]string{"a/memory.max": "5000\n", "a/memory.current": "9000\n"},
			Limit{None, ""}},
		{"not known", "0::/a\n", v2, none, map[string]string{"a/memory.max": "5000\n"}, Limit{None, ""}},
		{"version 1", "5:cpu,memory:/x\n0::/\n", v1, none, map[string]string{"memory/x/memory.limit_in_bytes": "8192\n",
			"memory/x/memory.usage_in_bytes": "8000\n", "memory/x/memory.stat": stat},
			Limit{1392, "/sys/fs/cgroup/memory/x/memory.limit_in_bytes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := fstest.MapFS{
				"proc/77/cgroup":      {Data: []byte(tt.groups)},
				"proc/self/mountinfo": {Data: []byte(tt.mounts)},
				"proc/meminfo":        {Data: []byte(tt.memory)},
			}
			for name, text := range tt.files {
				root["sys/fs/cgroup/"+name] = &fstest.MapFile{Data: []byte(text)}
			}
			if l := Room(root, 77); l != tt.want {
				t.Errorf("%+v, want %+v", l, tt.want)
			}
		})
	}
}

// What this machine says is read without an error.
func TestHere(t *testing.T) {
	root := os.DirFS("/")
	if l := Memory(root); l.Bytes <= 0 {
		t.Errorf("memory %+v", l)
	}
	if l := AddressSpace(root); l.Bytes <= 0 {
		t.Errorf("address space %+v", l)
	}
}
