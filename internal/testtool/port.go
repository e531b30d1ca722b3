package testtool

import (
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
)

// FreePort is a TCP port of 127.0.0.1 nobody listens on right now. It is not one of those that the kernel chooses: of these
// it could be somebody's connection's before a server listens. Nor is it one of those that Redis's own tests have, whose
// servers come and go: these are from 9000 on, and of clusters 10000 above.
func FreePort(t testing.TB) string {
	t.Helper()
	return FreePortIn(t, 23000, 32000)
}

// FreePortIn is a TCP port in [from, to) of 127.0.0.1 nobody listens on right now.
func FreePortIn(t testing.TB, from, to int) string {
	t.Helper()
	for range 1000 {
		port := fmt.Sprint(from + rand.IntN(to-from))
		if canListen(port) {
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// canListen says whether a port is free. No process is begun meanwhile: until it executes its program it would have the
// listening socket as well, at which the server that is to have the port fails, while clients are connected.
func canListen(port string) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return false
	}
	return l.Close() == nil
}
