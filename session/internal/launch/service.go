//go:build linux

package launch

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
)

// A service manager tells a program by the number of its process what is meant for it: sockets (LISTEN_PID,
// sd_listen_fds(3)), a watchdog (WATCHDOG_PID, sd_watchdog_enabled(3)), that it was started as a service
// (SYSTEMD_EXEC_PID). Started through a recorder it has another number, takes nothing for its own, and what it says
// to the manager is refused, because it is not the main process (NotifyAccess=main, systemd.service(5)).
//
// So where these variables have this process's number, the program starts with room for its own, which is written
// when it is known: at the exec stop. And the manager is told that the program is the main process.

const execPID = "SYSTEMD_EXEC_PID"

var pidVariables = []string{"LISTEN_PID", "WATCHDOG_PID", execPID}

// pidRoom is long enough for any number of a process, and no process has it.
const pidRoom = "0000000000"

// isOwn reports whether a setting of the environment has one of the variables with this process's number.
func isOwn(setting string) bool {
	name, value, _ := strings.Cut(setting, "=")
	return slices.Contains(pidVariables, name) && value == fmt.Sprint(os.Getpid())
}

// withRoom returns the environment with room for another number, and the settings that are to get it.
func withRoom(env []string) (out, room []string) {
	if !slices.ContainsFunc(env, isOwn) {
		return env, nil
	}
	out = slices.Clone(env)
	for i, s := range out {
		if isOwn(s) {
			name, _, _ := strings.Cut(s, "=")
			out[i] = name + "=" + pidRoom
			room = append(room, out[i])
		}
	}
	return out, room
}

// numbered is a setting of room with the number of a process.
func numbered(setting string, pid int) string {
	return fmt.Sprintf("%s%d", strings.TrimSuffix(setting, pidRoom), pid)
}

// warnService says what a program does not get that could not be held at its start.
func (l *Launcher) warnService() {
	for _, s := range l.Env {
		if name, _, _ := strings.Cut(s, "="); name != execPID && isOwn(s) {
			l.Logf("%s: %s names the recorder, not the program", l.Path, name)
		}
	}
}

// TellManager tells the service manager of an environment that the process is the main one of its service, if this
// process was until now.
func TellManager(env []string, pid int) error {
	value := func(name string) string {
		for _, s := range env {
			if v, ok := strings.CutPrefix(s, name+"="); ok {
				return v
			}
		}
		return ""
	}
	socket := value("NOTIFY_SOCKET")
	if value(execPID) != fmt.Sprint(os.Getpid()) || !strings.HasPrefix(socket, "/") && !strings.HasPrefix(socket, "@") {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("the service manager does not know the program: %w", err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "MAINPID=%d\n", pid); err != nil {
		return fmt.Errorf("the service manager does not know the program: %w", err)
	}
	return nil
}
