//go:build linux && (amd64 || arm64)

package clock

// readCounter reads the timestamp counter that the runtime stamps events with:
// the time stamp counter on amd64, the virtual count on arm64.
func readCounter() uint64
