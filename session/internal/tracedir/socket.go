//go:build linux

package tracedir

import (
	"fmt"
	"net"

	"github.com/fentry-dev/fentry/internal/format"
)

// Listen makes the directory's socket, at which programs find the recorder that do not see it in /proc. Some file
// systems cannot hold sockets.
func (d *Dir) Listen() (*net.UnixListener, error) {
	// By the directory's descriptor: its path can be longer than the address of a socket, and be another one's by now.
	at := fmt.Sprintf("/proc/self/fd/%d/%s", d.dir.Fd(), format.FileSocket)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.dir.Name(), err)
	}
	l.SetUnlinkOnClose(false)
	return l, nil
}

// Unlisten removes the socket.
func (d *Dir) Unlisten() { _ = d.dir.Remove(format.FileSocket) }
