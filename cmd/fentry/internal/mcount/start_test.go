package mcount

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/fentry-dev/fentry/"

// ours are the packages of this module that fentry mcount is made of, with those below them.
var ours = []string{"arch", "cmd/fentry/internal/mcount", "elfio", "internal", "record/objects"}

// bystanders are initialised before fentry mcount runs although it does not import them, and allocate memory then:
// their path comes first and their imports are ready. Who is added to them has to do next to nothing when a program
// starts; GODEBUG=inittrace=1 tells.
var bystanders = []string{
	"context", "crypto", "crypto/fips140", "crypto/internal/...", "crypto/sha256", "encoding/base64", "encoding/json", "flag",
	"hash/crc32", "hash/crc64", "math/big", "os/signal",
	"crypto/rsa", "crypto/x509/pkix", "encoding/asn1", "log", "mime", // net/http's
	"github.com/ianlancetaylor/demangle", "github.com/ulikunitz/xz/lzma",
	"github.com/klauspost/compress/internal/snapref", // zstd's: the table of a checksum, 0.1 ms, for compressed traces
	module + "internal/sitetable",
}

// TestStart: what other commands import does not make fentry mcount start later.
func TestStart(t *testing.T) {
	list := func(pkg string) []string {
		t.Helper()
		out, err := exec.Command("go", "list", "-deps", pkg).Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		return strings.Fields(string(out))
	}
	imported := list(".")
	for _, p := range imported {
		rel, is := strings.CutPrefix(p, module)
		below := func(o string) bool { return rel == o || strings.HasPrefix(rel, o+"/") }
		host, _, _ := strings.Cut(p, "/")
		foreign := strings.Contains(host, ".") && p != "golang.org/x/sys/unix"
		if is && !slices.ContainsFunc(ours, below) || !is && foreign || p == "regexp" || p == "runtime/debug" {
			t.Errorf("fentry mcount imports %s", p)
		}
	}

	dir := t.TempDir()
	fentry := filepath.Join(dir, "fentry")
	if out, err := exec.Command("go", "build", "-o", fentry, "../..").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	info, err := buildinfo.ReadFile(fentry)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
		return s.Key == "DefaultGODEBUG" && strings.Contains(s.Value, "updatemaxprocs=0")
	}) {
		t.Error("the runtime starts a thread that looks for a change of GOMAXPROCS: go:debug is gone from main.go")
	}
	// An object without profiling calls: nothing is to be done.
	b, err := os.ReadFile("../../../../stub/amd64.o")
	if err != nil {
		t.Fatal(err)
	}
	object := filepath.Join(dir, "object.o")
	if err := os.WriteFile(object, b, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(fentry, "mcount", object)
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1", "FENTRY_OPTS=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	initialised := 0
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "init" {
			t.Errorf("fentry mcount says %q", line)
			continue
		}
		initialised++
		known := func(b string) bool {
			tree, all := strings.CutSuffix(b, "...")
			return f[1] == b || all && strings.HasPrefix(f[1], tree)
		}
		idle := strings.HasSuffix(strings.TrimSpace(line), " 0 bytes, 0 allocs") // a table that is filled in at most
		if !idle && !slices.Contains(imported, f[1]) && !slices.ContainsFunc(bystanders, known) {
			t.Errorf("%s is initialised before fentry mcount runs:\n%s", f[1], line)
		}
	}
	if initialised < 10 {
		t.Errorf("only %d packages were initialised:\n%s", initialised, out)
	}
}
