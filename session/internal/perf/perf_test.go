//go:build linux

package perf

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestOnlineCPUs(t *testing.T) {
	for text, want := range map[string][]int{"0\n": {0}, "0-2,5\n": {0, 1, 2, 5}, "2-1": nil, "x": nil, "0-99999999": nil, "": nil} {
		path := filepath.Join(t.TempDir(), "online")
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		cpus, err := onlineCPUs(path)
		if !slices.Equal(cpus, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v", text, cpus, err)
		}
	}
}
