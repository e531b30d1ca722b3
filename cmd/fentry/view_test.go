package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
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
