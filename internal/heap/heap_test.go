package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// A heap is collected rarely while it is small, and as often as any when it is not.
func TestGenerous(t *testing.T) {
	percent := func() int {
		s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(s)
		return int(s[0].Value.Uint64())
	}
	was := percent()
	defer debug.SetGCPercent(was)
	t.Setenv("GOGC", "77")
	if Generous(); percent() != was {
		t.Errorf("GOGC=77: %d %%", percent())
	}
	if err := os.Unsetenv("GOGC"); err != nil {
		t.Fatal(err)
	}
	Generous()
	for range 3 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	if percent() != rarely {
		t.Errorf("%d %% with %d bytes", percent(), live())
	}
	much := make([]byte, 2*small)
	for deadline := time.Now().Add(time.Minute); percent() != often && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		runtime.GC()
	}
	if percent() != often {
		t.Errorf("%d %% with %d bytes", percent(), live())
	}
	runtime.KeepAlive(much)
}
