// Package heap has the garbage of small heaps collected less often.
package heap

import (
	"os"
	"runtime"
	"runtime/debug"
)

const (
	// often is Go's default: a heap is collected when it is twice what was live. That is from 4 MiB on, so a recorder that runs for
	// half a second and comes to 20 MiB is collected six times, on all processors, beside the program that it records.
	often = 100
	// rarely is for heaps of which up to small bytes are live. They come to five times that at most.
	rarely = 400
	small  = 16 << 20
)

// Generous has the heap collected rarely until it is no longer small. The environment's GOGC is obeyed.
func Generous() {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(rarely)
	watch()
}

// watch looks at the heap after the next collection.
func watch() {
	collected := new(*byte) // by that
	runtime.AddCleanup(collected, func(struct{}) {
		if live() > small {
			debug.SetGCPercent(often)
			return
		}
		watch()
	}, struct{}{})
}

// live is how many bytes the last collection has found in use, about, if heaps are collected rarely: of them comes when the next is.
func live() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NextGC / (1 + rarely/100)
}
