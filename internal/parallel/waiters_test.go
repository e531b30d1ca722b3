package parallel

import (
	"runtime"
	"testing"
)

// Who waits is provided for once, and is no processor for work.
func TestWaiters(t *testing.T) {
	defer func(n int) {
		runtime.GOMAXPROCS(n)
		added.Store(0)
	}(runtime.GOMAXPROCS(2))
	t.Setenv("GOMAXPROCS", "2")
	if Waiters(); runtime.GOMAXPROCS(0) != 2 || Processors() != 2 {
		t.Errorf("%d of %d, with 2 that were asked for", Processors(), runtime.GOMAXPROCS(0))
	}
	t.Setenv("GOMAXPROCS", "")
	for range 2 {
		if Waiters(); runtime.GOMAXPROCS(0) != 2+waiters || Processors() != 2 {
			t.Errorf("%d of %d, want 2 of %d", Processors(), runtime.GOMAXPROCS(0), 2+waiters)
		}
	}
	added.Store(0)
	runtime.GOMAXPROCS(few)
	if Waiters(); runtime.GOMAXPROCS(0) != few || Processors() != few {
		t.Errorf("%d of %d, want %d", Processors(), runtime.GOMAXPROCS(0), few)
	}
}
