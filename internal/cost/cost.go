// Package cost bounds what reading an input may cost, for tests of readers that promise memory and time linear in
// their input.
package cost

import (
	"fmt"
	"runtime/metrics"
	"syscall"
	"testing"
	"time"
)

const (
	// fixed is what any input may allocate. The runtime counts small objects when the memory for them is taken, so
	// what was allocated before can be counted late.
	fixed = 4 << 20
	// maxCPU is what any input may take of all processors: inputs of tests are small.
	maxCPU = 10 * time.Second
	// maxWait is when f is taken for one that does not end.
	maxWait = 2 * time.Minute
)

// Check runs f, which reads n bytes. The test fails when f allocates more than perByte bytes for each of them, counting
// also what it has given up again, or takes as long as no reader of a small input does. An f that does not end ends the
// process, so that a fuzzer keeps the input.
func Check(t testing.TB, n, perByte int, f func()) {
	t.Helper()
	watch := time.AfterFunc(maxWait, func() { panic(fmt.Sprintf("%d bytes are read for more than %v", n, maxWait)) })
	defer watch.Stop()
	heap, cpu := allocated(), processors()
	f()
	if took := processors() - cpu; took > maxCPU {
		t.Errorf("%d bytes took %v", n, took)
	}
	if got, limit := allocated()-heap, uint64(fixed)+uint64(perByte)*uint64(n); got > limit {
		t.Errorf("%d bytes made it allocate %d, more than %d", n, got, limit)
	}
}

// Time runs f, and fails the test when it takes as long as what is linear does not: of the processors, as a busy
// machine lets f wait for them.
func Time(t testing.TB, f func()) {
	t.Helper()
	cpu := processors()
	f()
	if took := processors() - cpu; took > maxCPU {
		t.Errorf("took %v", took)
	}
}

// allocated is what this process has ever allocated.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// processors is the time this process has run.
func processors() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
