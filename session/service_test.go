//go:build linux

package session

import (
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/session/internal/fixture"
)

// What a service manager gives to the process that it started is the program's, and the manager is told its number.
// A variable that names another process is left alone, and a patched copy, which cannot be held at its start, is told
// of.
func TestService(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the fixture's plan is for amd64")
	}
	testtool.Need(t, "bash")
	sh := fixture.CC(t, "testdata/service")
	for _, tt := range []struct {
		name, listen string
		r            recorderCmd
		same         bool
		says         string
	}{
		{"held", "$$", recorderCmd{Memory: harmless(t, sh)}, true, ""},
		{"other", "1", recorderCmd{Memory: harmless(t, sh)}, false, ""},
		{"copy", "$$", recorderCmd{Memory: harmless(t, sh), Copy: sh, NoPtrace: true}, false, "LISTEN_PID names the recorder"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "notify")
			manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer manager.Close()
			tt.r.prefix = []string{"bash", "-c",
				`LISTEN_PID=` + tt.listen + ` SYSTEMD_EXEC_PID=$$ NOTIFY_SOCKET=` + socket + ` LISTEN_FDS=1 exec "$@"`, "bash"}
			cmd := tt.r.command(t, sh)
			var out, errb bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errb
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			x := tt.r.finish(t, cmd, &out, &errb)
			var pid, listen int
			if _, err := fmt.Sscanf(x.stdout, "%d %d", &pid, &listen); err != nil || x.code != 0 || (pid == listen) != tt.same {
				t.Errorf("status %d, process and LISTEN_PID %q, %v", x.code, x.stdout, err)
			}
			if !strings.Contains(x.stderr, tt.says) || tt.says == "" && x.stderr != "" {
				t.Errorf("stderr %q", x.stderr)
			}
			b := make([]byte, 100)
			manager.SetReadDeadline(time.Now().Add(10 * time.Second))
			n, err := manager.Read(b)
			if want := fmt.Sprintf("MAINPID=%d\n", pid); err != nil || string(b[:n]) != want {
				t.Errorf("the manager heard %q, %v, want %q", b[:n], err, want)
			}
		})
	}
}
