//go:build linux

package procfs

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/fentry-dev/fentry/internal/cost"
)

// FuzzProcfs: a stat file is read right whatever the program calls itself, and a shared file is found in a maps file
// where a line says all of it.
func FuzzProcfs(f *testing.F) {
	f.Add([]byte("7 (a) b ) 1) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"), byte('S'), uint64(4711))
	f.Add([]byte("7f0000000000-7f0000010000 rw-s 00000000 00:01 4711 /memfd:fentry-pool (deleted)\n"), byte('Z'), uint64(1)<<63)
	for _, name := range []string{"stat", "maps"} {
		if b, err := os.ReadFile("/proc/self/" + name); err == nil {
			f.Add(b[:min(len(b), 4096)], byte('R'), uint64(9))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, state byte, start uint64) {
		cost.Check(t, len(b), 100, func() { parseStat(b) })
		line := fmt.Appendf(nil, "12 (%s) %c 1 2 3 -1 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %d 20 21\n", b, state|0x40&^0x80, start)
		if bytes.IndexByte([]byte(" \t\n\v\f\r)\x85\xa0"), state|0x40&^0x80) < 0 && state|0x40&^0x80 < 0x80 {
			if s, err := parseStat(line); err != nil || s.State != state|0x40&^0x80 || s.Start != start {
				t.Errorf("%q: %+v, %v", line, s, err)
			}
		}
		pool := SharedFile{4711, "/memfd:fentry-pool (deleted)"}
		mapped := pool.in(b)
		if mapped && !bytes.Contains(b, []byte("4711")) {
			t.Errorf("found in %q", b)
		}
		one := []byte("7f0000000000-7f0000010000 rw-s 00000000 00:01 4711                       /memfd:fentry-pool (deleted)\n")
		other := bytes.ReplaceAll(one, []byte("4711"), []byte("4712"))
		if len(b) > 0 && b[len(b)-1] != '\n' {
			b = append(bytes.Clone(b), '\n')
			mapped = pool.in(b)
		}
		if !pool.in(append(bytes.Clone(b), one...)) || !pool.in(append(bytes.Clone(one), b...)) || pool.in(append(bytes.Clone(b), other...)) != mapped {
			t.Errorf("%q and a line of the pool's", b)
		}
	})
}
