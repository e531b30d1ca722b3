//go:build linux

package session_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/session/internal/fixture"
)

// With a pool of the usual size, all events of many more threads than it has chunks
// arrive, also when all of them are idle with what they have.
func TestCrowd(t *testing.T) {
	path := fixture.CC(t, "testdata/crowd", "-fpatchable-function-entry=5")
	for _, tt := range []struct {
		threads, calls int
		buffer         int64
	}{
		{20000, 50, 0},
		{20000, 3000, 0},
		{900, 3000, 16 << 16}, // of the full size there are 16
	} {
		t.Run(fmt.Sprintf("%d threads, %d calls", tt.threads, tt.calls), func(t *testing.T) {
			if testing.Short() && tt.threads > 3000 {
				t.Skip("needs time for 20,000 threads (-short)")
			}
			res := runTraced(t, path, tt.buffer, fmt.Sprint(tt.threads), fmt.Sprint(tt.calls))
			if res.Status.ExitStatus() == 77 {
				t.Skip("needs the right to make 20,000 threads")
			}
			want := 2 * uint64(tt.threads) * uint64(tt.calls)
			if res.Status != 0 || res.Events != want || res.Lost != 0 || res.Tasks != tt.threads+1 {
				t.Errorf("%+v; want %d events of %d tasks", res, want, tt.threads+1)
			}
		})
	}
}

// runTraced runs a program traced in every function that can be.
func runTraced(t *testing.T, path string, buffer int64, args ...string) session.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	res, err := session.Run(ctx, session.Options{
		Path: path, Args: append([]string{path}, args...), Dir: filepath.Join(t.TempDir(), "data"), Buffer: buffer,
		Prepare: func(pool string) (*patch.Memory, error) {
			return fixture.Memory(t, path, pool), nil
		},
		Logf: func(format string, args ...any) { t.Errorf(format, args...) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return res
}
