package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// nginxConf is the configuration of a server below a directory, at a port.
const nginxConf = `worker_processes 2;
daemon off;
user root;
error_log %[1]s/log;
pid %[1]s/pid;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/1; proxy_temp_path %[1]s/2; fastcgi_temp_path %[1]s/3; uwsgi_temp_path %[1]s/4; scgi_temp_path %[1]s/5;
	server { listen 127.0.0.1:%[2]s; root %[1]s/www; }
}
`

// TestSyscallNginx compares the system calls of nginx, its workers and those that take their place when it reads its
// configuration again with those that strace sees, for the same requests.
func TestSyscallNginx(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("system calls are moved on x86-64")
	}
	testtool.Need(t, "strace", "gcc", "/usr/sbin/nginx")
	needFentry(t)
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "www"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "www", "index.html"), []byte("hello"), 0o666); err != nil {
		t.Fatal(err)
	}
	data, log := filepath.Join(dir, "data"), filepath.Join(dir, "strace")
	serveNginx(t, dir, nil) // which makes its directories
	serveNginx(t, dir, []string{fentry, "record", "-q", "--syscalls", "-F", "none", "-o", data})
	serveNginx(t, dir, []string{"strace", "-f", "-qq", "-o", log})
	have, want := recordedSyscalls(t, data, syscallNumbers(t)), stracedLog(t, log)
	want["execve"]-- // the program's own
	// How often it waits depends on when what comes, and on which worker is the first to accept it; and what the loader
	// does on libraries' segments.
	timed := []string{"epoll_wait", "recvmsg", "rt_sigsuspend", "gettid", "accept4", "epoll_ctl", "sendmsg", "mmap", "mprotect", "close", "brk", "wait4", "ioctl"}
	for name, n := range want {
		if d := have[name] - n; d != 0 && !slices.Contains(timed, name) || d < -20 || d > 20 {
			t.Errorf("%s: %d, strace has %d", name, have[name], n)
		}
	}
	for name, n := range have {
		if want[name] == 0 && n > 0 {
			t.Errorf("%s: %d, strace has none", name, n)
		}
	}
	if n := have["accept4"]; n < nginxRequests {
		t.Errorf("%d connections are accepted, %d were made", n, nginxRequests)
	}
}

const nginxRequests = 40

// serveNginx runs nginx by a command, makes requests, has it read its configuration in the middle, and ends it.
func serveNginx(t *testing.T, dir string, by []string) {
	t.Helper()
	port := testtool.FreePort(t)
	conf, pidFile := filepath.Join(dir, "conf"), filepath.Join(dir, "pid")
	os.Remove(pidFile)
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, dir, port), 0o666); err != nil {
		t.Fatal(err)
	}
	argv := slices.Concat(by, []string{"/usr/sbin/nginx", "-c", conf})
	cmd := exec.Command(argv[0], argv[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v\n%s", argv, err, out.String())
		}
	}()
	waitFor := func(what string, f func() bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); !f(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				cmd.Process.Kill()
				t.Fatalf("%v: no %s\n%s", argv, what, out.String())
			}
		}
	}
	pid := 0
	waitFor("number", func() bool {
		b, _ := os.ReadFile(pidFile)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return pid != 0
	})
	workers := func() []string {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		return strings.Fields(string(b))
	}
	waitFor("workers", func() bool { return len(workers()) == 2 })
	first := workers()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	requests := func(n int) {
		t.Helper()
		for range n {
			r, err := client.Get(fmt.Sprintf("http://127.0.0.1:%s/", port))
			if err != nil {
				t.Errorf("%v: %v", argv, err)
				return
			}
			if b, err := io.ReadAll(r.Body); err != nil || string(b) != "hello" {
				t.Errorf("%v: %q, %v", argv, b, err)
			}
			r.Body.Close()
		}
	}
	requests(nginxRequests / 2)
	syscall.Kill(pid, syscall.SIGHUP)
	waitFor("new workers", func() bool {
		now := workers()
		return len(now) == 2 && !slices.ContainsFunc(now, func(w string) bool { return slices.Contains(first, w) })
	})
	requests(nginxRequests - nginxRequests/2)
	syscall.Kill(pid, syscall.SIGQUIT)
}
