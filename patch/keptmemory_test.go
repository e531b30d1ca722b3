package patch_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/patch"
)

// What is kept is what was there, but for the path of the buffer, and nothing else is taken for it.
func TestKeptMemory(t *testing.T) {
	image := read(t, onAMD64.compile(t, "kept.c", "int f(int i) { return i + 1; }\nint main(void) { return f(41); }\n", "-pg", "-mfentry"))
	pools := []string{"/proc/1/fd/1000", "/proc/22/fd/1000"}
	var all [][]byte
	for _, pool := range pools {
		m, err := plan(t, image, patch.Options{Target: patch.Process, Session: pool}).Memory()
		if err != nil {
			t.Fatal(err)
		}
		b := patch.AppendMemory(nil, m)
		if !m.Keeps() || bytes.Contains(b, []byte(pool)) {
			t.Errorf("%s is kept", pool)
		}
		all = append(all, b)
		kept, err := patch.ReadMemory(bytes.Clone(b))
		if err == nil {
			err = kept.SetSession(pool)
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(kept.RX, m.RX) || len(kept.Edits) != len(m.Edits) || !bytes.Equal(patch.AppendMemory(nil, kept), b) {
			t.Errorf("%s: another one", pool)
		}
		if err := kept.SetSession(strings.Repeat("x", 512)); err == nil {
			t.Error("a path that is too long")
		}
	}
	if !bytes.Equal(all[0], all[1]) {
		t.Error("it depends on where the buffer is")
	}
	for n := range all[0] {
		bad := bytes.Clone(all[0])
		bad[n] ^= 0x10
		for _, b := range [][]byte{bad, all[0][:n]} {
			if _, err := patch.ReadMemory(b); err == nil {
				t.Fatalf("damaged at %d, %d bytes", n, len(b))
			}
		}
	}
}
