package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/names"
	"github.com/fentry-dev/fentry/trace"
)

// evil is text that would do something to a terminal, or hide: an escape sequence, one as C1 control, as a byte and as a
// character, a change of direction, an invisible character, a line separator, a tag.
const evil = "x\x1b[2J\x9b31m\u009b31m\u202egnp\u200b\u2028y\U000e0041"

// inProcess runs a command line.
func inProcess(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdin: os.Stdin, stdout: &out, stderr: &errs, lookupEnv: func(string) (string, bool) { return "", false }}
	status = run(args, a)
	return status, out.String(), errs.String()
}

// checkSafe checks that what a command has printed can be shown.
func checkSafe(t *testing.T, args []string, what, text string) {
	t.Helper()
	for i, r := range text {
		if r != '\n' && !safetext.Safe(r) {
			t.Errorf("%q: %s has %U: %q", args, what, r, text[max(0, i-40):min(len(text), i+20)])
			return
		}
	}
}

// hostileTrace is a trace in which everything that a program or its recorder can name is evil.
func hostileTrace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var b bytes.Buffer
	w, err := trace.NewWriter(&b, trace.Header{Counter: 1000, Monotonic: 1000, CounterHz: 1e9, Closed: true})
	if err != nil {
		t.Fatal(err)
	}
	unnamed := testImage + 1
	for _, im := range []trace.Image{
		{ID: testImage, Path: "/bin/" + evil, Exe: evil, Command: []string{evil}, BuildID: evil, Sites: 2},
		{ID: unnamed, Path: "/bin/" + evil, Sites: 2},
	} {
		if err := w.WriteImage(im); err != nil {
			t.Fatal(err)
		}
	}
	for i, im := range []trace.ImageID{testImage, unnamed} {
		k := w.Task(trace.TaskID{PID: 1, TID: i + 1, Image: im, Comm: "\x1b]\u202e\u200b"})
		at := uint64(2000)
		k.Enter(at, 1)
		k.Enter(at+1, 2)
		k.Mark(at+2, 7, evil)
		k.Comm(at+3, "\u2028\x9b\x1b[")
		k.Exit(at+4, 2)
		k.Exit(at+5, 1)
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	put := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	put(trace.EventsFile, b.Bytes())
	var sym bytes.Buffer
	tab := names.Table{Path: evil, Image: uint64(testImage), Funcs: []names.Func{
		{ID: 1, Addr: 0x401000, Kind: evil, Name: evil}, {ID: 2, Addr: 0x402000, Kind: "plain", Name: evil + "2"}}}
	if err := names.Write(&sym, &tab); err != nil {
		t.Fatal(err)
	}
	put(testImage.String()+trace.SymExt, sym.Bytes())
	info := trace.Info{
		Writer: evil, Command: []string{evil}, Dir: evil, Options: []string{evil}, Host: evil, Kernel: evil, CPU: evil,
		Images: []trace.Image{{ID: testImage, Path: evil}},
	}
	enc, err := json.Marshal(&info)
	if err != nil {
		t.Fatal(err)
	}
	put(trace.InfoFile, enc)
	return dir
}

// TestHostileTrace: no command prints what a trace says as it is.
func TestHostileTrace(t *testing.T) {
	dir := hostileTrace(t)
	for _, line := range []string{
		"replay", "replay --format function", "replay --format json", "replay -f proc,abstime", "replay --demangle no", "replay --srcline",
		"report", "report --task", "report --json", "report --srcline", "graph", "graph --json", "graph --task", "graph --focus x*", "graph --focus x* --json",
		"info", "info --json", "replay -F nothing", "report -F nothing",
	} {
		args := append(strings.Fields(line), "-i", dir)
		status, out, errs := inProcess(t, args...)
		if status != 0 || out == "" {
			t.Errorf("%q: status %d, %q %q", args, status, out, errs)
		}
		checkSafe(t, args, "stdout", out)
		checkSafe(t, args, "stderr", errs)
	}
	for _, args := range [][]string{{"graph", evil, "-i", dir}, {"info", dir + evil}, {evil}, {"replay", "-F", evil, "-i", dir}, {"list", evil}} {
		_, out, errs := inProcess(t, args...)
		checkSafe(t, args, "stdout", out)
		checkSafe(t, args, "stderr", errs)
	}
}

// TestHostileProgram: no command prints what an ELF file says as it is.
func TestHostileProgram(t *testing.T) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	src := filepath.Join(dir, "x.s")
	quoted := strings.NewReplacer("\x1b", `\033`, "\x9b", `\233`).Replace(evil)
	text := fmt.Sprintf(".globl main\n.type main,@function\nmain: call __fentry__\nret\n.size main,.-main\n"+
		".globl __fentry__\n__fentry__: ret\n"+
		".globl \"f%[1]s\"\n.type \"f%[1]s\",@function\n\"f%[1]s\": call __fentry__\nret\n.size \"f%[1]s\",.-\"f%[1]s\"\n"+
		".section \".text.%[1]s\",\"ax\",@progbits\ng: call __fentry__\nret\n.size g,.-g\n"+
		".section \"evil%[1]s\",\"ax\",@progbits\nh: call __fentry__\nret\n.size h,.-h\n"+
		".section .note.GNU-stack,\"\",@progbits\n", quoted)
	if err := os.WriteFile(src, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	object, program := filepath.Join(dir, "x.o"), filepath.Join(dir, "x")
	for _, args := range [][]string{{"-c", src, "-o", object}, {object, "-o", program}} {
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b, []byte("\u202e")) {
		t.Fatal("the assembler has changed the names")
	}
	for _, line := range []string{
		"list PROGRAM", "list -l PROGRAM", "list --json PROGRAM", "list --demangle no PROGRAM",
		"patch --plan PROGRAM", "patch --plan --json PROGRAM", "info PROGRAM",
		"mcount --list OBJECT", "mcount --list --json OBJECT", "mcount --check OBJECT", "mcount --warn OBJECT",
	} {
		args := strings.Fields(strings.NewReplacer("PROGRAM", program, "OBJECT", object).Replace(line))
		_, out, errs := inProcess(t, args...)
		if out == "" {
			t.Errorf("%q: %q %q", args, out, errs)
		}
		checkSafe(t, args, "stdout", out)
		checkSafe(t, args, "stderr", errs)
	}
}
