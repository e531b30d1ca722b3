//go:build linux

package fentry_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/record"
)

// A largeJob is what a large program does in a directory of its own; it returns what there is to compare. start starts a
// command of the program, traced or not, which must end with status 0.
type largeJob func(t *testing.T, dir string, start func(args ...string) *largeRun) string

// A largeRun is a command that runs.
type largeRun struct {
	out  bytes.Buffer
	wait func()

	interrupt func()
}

var largePrograms = []struct {
	pkg, version string
	job          largeJob
}{
	{"github.com/evanw/esbuild/cmd/esbuild", "v0.25.0", func(t *testing.T, dir string, start func(...string) *largeRun) string {
		writeFiles(t, dir, map[string]string{
			"a.ts":  "import {b} from './b.js'\nenum E { one = 1 }\nconsole.log(b(E.one), [1, 2, 3].map(x => x ** 2))\n",
			"b.js":  "export function b(x) { return x + 1 }\nexport const unused = 5\n",
			"c.css": "a { b: c } @media print { a { b: d } }\n",
		})
		start("a.ts", "c.css", "--bundle", "--minify", "--sourcemap", "--target=es2015", "--outdir=out", "--log-level=error").wait()
		return readTree(t, filepath.Join(dir, "out"))
	}},
	{"github.com/gohugoio/hugo", "v0.147.9", func(t *testing.T, dir string, start func(...string) *largeRun) string {
		files := map[string]string{
			"hugo.toml":                    "title = 't'\nbaseURL = 'https://example.org/'\n",
			"layouts/_default/single.html": "<h1>{{ .Title }}</h1>{{ .Content }}",
			"layouts/index.html":           "{{ range .Site.RegularPages }}<a href='{{ .Permalink }}'>{{ .Title }}</a>{{ end }}",
		}
		for i := range 50 {
			files[fmt.Sprintf("content/posts/p%d.md", i)] = fmt.Sprintf("---\ntitle: Post %d\ndate: 2024-01-%02d\n---\n# A\n\n*b* `c`\n\n"+
				"| a | b |\n|---|---|\n| 1 | %d |\n", i, i%28+1, i)
		}
		writeFiles(t, dir, files)
		start("-s", ".", "-d", "out", "--quiet").wait()
		return readTree(t, filepath.Join(dir, "out"))
	}},
	{"golang.org/x/tools/gopls", "v0.20.0", func(t *testing.T, dir string, start func(...string) *largeRun) string {
		writeFiles(t, dir, map[string]string{
			"go.mod":  "module example.org/m\n\ngo 1.24\n",
			"main.go": "package main\n\ntype T struct{ a, b int }\n\nfunc (t *T) f() int { return t.a + undefined }\n\nfunc main() {}\n",
		})
		symbols, check := start("symbols", "main.go"), start("check", "main.go")
		symbols.wait()
		check.wait()
		return symbols.out.String() + strings.ReplaceAll(check.out.String(), dir, "")
	}},
	{"github.com/caddyserver/caddy/v2/cmd/caddy", "v2.10.0", func(t *testing.T, dir string, start func(...string) *largeRun) string {
		addr := "127.0.0.1:" + testtool.FreePort(t)
		writeFiles(t, dir, map[string]string{
			"Caddyfile":   "{\n\tadmin off\n\tauto_https off\n}\nhttp://" + addr + " {\n\troot * site\n\ttemplates\n\tencode gzip\n\tfile_server browse\n}\n",
			"site/a.html": "<p>{{ 1 | add 2 }} {{ .Req.Method }}</p>\n", "site/b/c.txt": strings.Repeat("text ", 5000),
		})
		server := start("run", "--config", "Caddyfile")
		said := ""
		for _, path := range []string{"/a.html", "/b/c.txt", "/none"} {
			said += request(t, addr, "GET "+path+" HTTP/1.1\r\nHost: "+addr+"\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n", "")
		}
		server.interrupt()
		server.wait()
		return regexp.MustCompile(`(?m)^(Date|Last-Modified|Etag): .*$`).ReplaceAllString(said, "$1")
	}},
	{"github.com/nats-io/nats-server/v2", "v2.11.4", func(t *testing.T, dir string, start func(...string) *largeRun) string {
		port := testtool.FreePort(t)
		addr := "127.0.0.1:" + port
		server := start("-a", "127.0.0.1", "-p", port)
		said := request(t, addr, "CONNECT {\"verbose\":false}\r\nSUB a.* 1\r\n"+strings.Repeat("PUB a.b 5\r\nhello\r\n", 1000)+"PING\r\n", "PONG")
		server.interrupt()
		server.wait()
		_, said, _ = strings.Cut(said, "\r\n") // INFO has names of its own
		return said
	}},
}

// TestGoLarge installs large programs from the module proxy: nearly all of their functions can be traced, at all of their
// ends, and they do the same traced, all functions, as untraced.
func TestGoLarge(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	if !testtool.Wide() {
		t.Skip("large programs are built only in wide runs")
	}
	testtool.Long(t)
	command := filepath.Join(t.TempDir(), "fentry")
	build := exec.Command("go", "build", "-o", command, "./cmd/fentry")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, l := range largePrograms {
		t.Run(filepath.Base(strings.TrimSuffix(l.pkg, "/v2")), func(t *testing.T) {
			prog := installLarge(t, l.pkg+"@"+l.version)
			largeCoverage(t, prog)
			said := map[bool]string{}
			for _, traced := range []bool{false, true} {
				dir := t.TempDir()
				said[traced] = l.job(t, dir, func(args ...string) *largeRun { return startLarge(t, command, traced, dir, prog, args) })
			}
			if said[false] == "" {
				t.Error("it says nothing")
			}
			if d := cmp.Diff(said[false], said[true]); d != "" {
				t.Errorf("what it did (-untraced +traced):\n%s", d)
			}
		})
	}
}

func installLarge(t *testing.T, pkg string) string {
	t.Helper()
	bin := t.TempDir()
	cmd := exec.Command("go", "install", pkg)
	cmd.Dir = bin
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOTOOLCHAIN=auto")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(bin, "*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	return found[0]
}

// largeCoverage counts the functions that Go's compiler has made, outside of the runtime and of the package that checks
// itself.
func largeCoverage(t *testing.T, prog string) {
	t.Helper()
	p, err := fentry.Open(prog)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	why, compiled, traced := map[record.Reason]int{}, 0, 0
	for i := range p.Sites {
		switch s := &p.Sites[i]; s.Reason {
		case record.ReasonGoRuntime, record.ReasonGoAssembly, record.ReasonGoExternal, record.ReasonGoWrapper, record.ReasonGoMeasured:
		case "":
			compiled++
			traced++
		default:
			compiled++
			why[s.Reason]++
		}
	}
	t.Logf("%d of %d functions, %.3f %%; not: %v", traced, compiled, 100*float64(traced)/float64(compiled), why)
	if compiled < 5000 || float64(traced) < 0.997*float64(compiled) {
		t.Errorf("only %d of %d functions can be traced: %v", traced, compiled, why)
	}
}

// startLarge starts a program in a directory.
func startLarge(t *testing.T, command string, traced bool, dir, prog string, args []string) *largeRun {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	if traced {
		args = append([]string{"record", "--overhead", "no", "-o", filepath.Join(t.TempDir(), "trace"), prog}, args...)
		prog = command
	}
	cmd := exec.CommandContext(ctx, prog, args...)
	r := &largeRun{}
	var said bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, &r.out, &said, &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir, "GOPLSCACHE="+dir, "GOTOOLCHAIN=local")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.wait = func() {
		t.Helper()
		err := cmd.Wait()
		if err != nil || traced && !strings.Contains(said.String(), " 0 lost") {
			t.Fatalf("%s %v: %v\n%s", prog, args, err, said.String())
		}
	}
	r.interrupt = func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) } // as ^C does
	return r
}

// request sends text to a server as soon as there is one, and returns what that says, up to a line that begins with end, or
// until it has no more.
func request(t *testing.T, addr, text, end string) string {
	t.Helper()
	var c net.Conn
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var err error
		if c, err = net.Dial("tcp", addr); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	defer c.Close()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	said := ""
	for lines := bufio.NewReader(c); ; {
		line, err := lines.ReadString('\n')
		said += line
		if err != nil || end != "" && strings.HasPrefix(line, end) {
			return said
		}
	}
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
}

// readTree returns all files in a directory, with their names.
func readTree(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		fmt.Fprintf(&all, "== %s\n%s\n", strings.TrimPrefix(path, dir), b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
