package runfile

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// TestRunAtOnce writes and runs programs while others are started all the time.
func TestRunAtOnce(t *testing.T) {
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	var g sync.WaitGroup
	for w := range 8 {
		g.Go(func() {
			for i := range 20 {
				name := filepath.Join(dir, strconv.Itoa(w)+"-"+strconv.Itoa(i))
				if err := WriteFile(name, program); err != nil {
					t.Error(err)
					return
				}
				if err := exec.Command(name).Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	g.Wait()
}
