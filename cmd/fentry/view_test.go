package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fentry-dev/fentry/internal/sample"
)

// serveview is the script command "serveview DIR": fentry view prints an address of this machine, at which there is a page,
// which gets what it asks for; others get nothing. Told to end, it does so at once.
func serveview(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serveview DIR")
	}
	cmd := exec.Command(os.Args[0], "view", args[0])
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "FENTRY_TEST_MAIN=1", "DISPLAY=", "WAYLAND_DISPLAY=")
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	ts.Check(err)
	address := strings.TrimSpace(line)
	if !regexp.MustCompile(`^http://127\.0\.0\.1:[0-9]+/[A-Z2-7]{26}/$`).MatchString(address) {
		ts.Fatalf("the address is %q", address)
	}
	get := func(url string) (int, string) {
		r, err := http.Get(url)
		ts.Check(err)
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		ts.Check(err)
		return r.StatusCode, string(b)
	}
	if code, page := get(address); code != 200 || !strings.Contains(page, "main.js") {
		ts.Fatalf("the page: %d %s", code, page)
	}
	if code, table := get(address + "api/functions?from=0&to=100000"); code != 200 || !strings.Contains(table, `"name":"parse"`) {
		ts.Fatalf("the functions: %d %s", code, table)
	}
	if code, _ := get(address[:strings.LastIndex(strings.TrimSuffix(address, "/"), "/")] + "/"); code != 404 {
		ts.Fatalf("without the token: %d", code)
	}
	ts.Check(cmd.Process.Signal(syscall.SIGINT))
	ts.Check(cmd.Wait())
}

// TestViewBrowser: on a desktop, and only there, the address is opened in a browser.
func TestViewBrowser(t *testing.T) {
	data := sample.Small(t).Dir
	for name, c := range map[string]struct {
		args, env []string
		opened    bool
	}{
		"X":             {nil, []string{"DISPLAY=:9"}, true},
		"Wayland":       {nil, []string{"WAYLAND_DISPLAY=wayland-0"}, true},
		"no desktop":    {nil, nil, false},
		"from far away": {nil, []string{"DISPLAY=localhost:10", "SSH_CONNECTION=1.2.3.4 5 6.7.8.9 22"}, false},
		"not wanted":    {[]string{"--no-browser"}, []string{"DISPLAY=:9"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			script := "#!/bin/sh\necho \"$1\" > " + filepath.Join(dir, "new") + " && mv " + filepath.Join(dir, "new") + " " + filepath.Join(dir, "opened") + "\n"
			if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(script), 0o777); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0], append([]string{"view", "-i", data}, c.args...)...)
			cmd.Env = append(append(os.Environ(), "FENTRY_TEST_MAIN=1", "DISPLAY=", "WAYLAND_DISPLAY=", "SSH_CONNECTION=",
				"PATH="+dir+":/usr/bin:/bin"), c.env...)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			address, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.Get(strings.TrimSpace(address)) // it serves when it has started what it starts
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			opened := filepath.Join(dir, "opened")
			limit := time.Now().Add(time.Minute)
			for (c.opened || hasChildren(cmd.Process.Pid)) && time.Now().Before(limit) {
				if _, err := os.Stat(opened); err == nil {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			if text, _ := os.ReadFile(opened); c.opened && string(text) != address || !c.opened && len(text) > 0 {
				t.Errorf("%q is opened, the address is %q", text, address)
			}
		})
	}
}

// hasChildren tells whether a process has any.
func hasChildren(pid int) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		if list, _ := os.ReadFile(f); len(list) > 0 {
			return true
		}
	}
	return false
}
