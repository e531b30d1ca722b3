package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// A large server of Go, as its authors release it, under load.

const largeServer = "github.com/caddyserver/caddy/v2/cmd/caddy@v2.10.0"

// goLarge prints how many requests it answers in a second, and what each takes of the server's processor time. Its answers are
// the same however it runs.
func (b *bench) goLarge(data string) error {
	load, err := b.buildGo("goload")
	if err != nil {
		return err
	}
	bin := filepath.Join(b.dir, "bin")
	if err := b.tool("env", "CGO_ENABLED=0", "GOBIN="+bin, "GOFLAGS=-buildvcs=false", "go", "install", largeServer); err != nil {
		fmt.Printf("not measured: a large server: %v\n", err)
		return nil
	}
	caddy, site := filepath.Join(bin, "caddy"), filepath.Join(b.dir, "site")
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	config := filepath.Join(b.dir, "Caddyfile")
	for path, text := range map[string]string{
		config: "{\n\tadmin off\n\tauto_https off\n\tstorage file_system " + filepath.Join(b.dir, "caddy.data") + "\n}\nhttp://" + addr +
			" {\n\troot * " + site + "\n\ttemplates\n\tencode gzip\n\tfile_server browse\n}\n",
		filepath.Join(site, "a.html"):  "<p>{{ 1 | add 2 }} {{ .Req.Method }}</p>\n",
		filepath.Join(site, "b/c.txt"): strings.Repeat("text ", 5000),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			return err
		}
	}
	if err := b.tool(b.fentry, "patch", "-o", caddy+".traced", caddy); err != nil {
		return err
	}
	requests := "20000"
	if b.quick {
		requests = "400"
	}
	answers := ""
	ask := func(name string, server ...string) *goRun {
		server = append(server, "run", "--config", config)
		return &goRun{name: name, argv: append([]string{load, addr, requests}, server...), check: func(out string) error {
			line, _, _ := strings.Cut(out, "\n")
			if answers == "" {
				answers = line
			}
			if line != answers {
				return fmt.Errorf("it answers otherwise than untraced: %s, not %s", line, answers)
			}
			return nil
		}}
	}
	record := func(more ...string) []string {
		return append(append([]string{b.fentry, "record", "-q", "--overhead", "no", "-o", data}, more...), caddy)
	}
	off := ask("patched, all functions, FENTRY_OFF=1", caddy+".traced")
	off.env = []string{"FENTRY_OFF=1"}
	runs := []*goRun{
		ask("untraced", caddy), off,
		ask("fentry record -F own", record("-F", "own")...),
		ask("fentry record -F own -F net/http/...", record("-F", "own", "-F", "net/http/...")...),
		ask("fentry record, adaptive", b.fentry, "record", "-q", "-o", data, caddy),
		ask("fentry record, all functions", record()...),
	}
	for _, r := range runs {
		r.of = "rate"
	}
	if err := b.goMeasure(runs, data); err != nil {
		return err
	}
	if err := goPrint("Requests a second that caddy answers", runs); err != nil {
		return err
	}
	for _, r := range runs {
		r.of = "each"
	}
	return goPrint("The same requests, in us of the server's processor time", runs)
}

// freeAddr is an address that nobody listens at.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
