package e2e

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestSwaps: coroutines whose pieces of one stack are copied to and fro behave as untraced, and all calls are counted, whoever
// traces whichever of their functions: the program that has the function which copies, or a library that nobody has named.
func TestSwaps(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("programs without sites are traced on x86-64")
	}
	needFentry(t)
	gcc, src := testtool.Path(t, "gcc"), "testdata/swaps/"
	flags := []string{"-O2", "-fno-omit-frame-pointer", "-fno-stack-protector"}
	for _, where := range []string{"program", "library"} {
		t.Run(where, func(t *testing.T) {
			dir := t.TempDir()
			program, more := filepath.Join(dir, "swaps"), []string{src + "swap.c"}
			if where == "library" {
				lib := filepath.Join(dir, "swap.so")
				run(t, command{argv: append([]string{gcc, "-shared", "-fPIC", "-o", lib, src + "swap.c"}, flags...)}).mustSucceed(t)
				more = []string{lib, "-Wl,-rpath," + dir}
			}
			run(t, command{argv: append(append([]string{gcc, "-rdynamic", "-o", program, src + "main.c"}, flags...), more...)}).mustSucceed(t)
			want := run(t, command{argv: []string{program}})
			if want.status != "exit 3" || want.stdout == "" {
				t.Fatalf("%s: %q, %q", want.status, want.stdout, want.stderr)
			}
			data := filepath.Join(dir, "data")
			record := func(options string) (leaf, nested int) {
				t.Helper()
				argv := append([]string{fentry, "record", "--overhead", "no", "-o", data}, strings.Fields(options)...)
				sameBehaviour(t, want, run(t, command{argv: append(argv, program)}))
				return calls(t, data, "leaf"), calls(t, data, "nested")
			}
			leaf, nested := record("-T count")
			if leaf == 0 || nested == 0 {
				t.Fatalf("%d and %d calls", leaf, nested)
			}
			for _, options := range []string{"", "-L *", "-T profile", "-T function", "--clock none", "--syscalls", "-F leaf -F nested"} {
				if l, n := record(options); l != leaf || n != nested {
					t.Errorf("%q: %d and %d calls, want %d and %d", options, l, n, leaf, nested)
				}
			}
			record("-D 3")
			record("-t 1us")
			attachSwaps(t, program, data)
		})
	}
}

// attachSwaps records such a program while it runs, again and again.
func attachSwaps(t *testing.T, program, data string) {
	t.Helper()
	const seconds = 4
	cmd := exec.Command(program, strconv.Itoa(seconds))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	said.Scan() // it has begun
	for range 3 {
		got := run(t, command{argv: []string{fentry, "record", "--overhead", "no", "-o", data, "--for", "300ms", "-p", strconv.Itoa(cmd.Process.Pid)}})
		switch {
		case strings.Contains(got.stderr, "not permitted"):
			t.Skip(got.stderr)
		case got.status != "exit 0":
			t.Errorf("%s\n%s", got.status, got.stderr)
		default:
			if calls(t, data, "leaf") == 0 {
				t.Errorf("no call of leaf is recorded:\n%s", got.stderr)
			}
		}
	}
	said.Scan()
	if err := cmd.Wait(); said.Text() != "right" || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("%q, %v", said.Text(), err)
	}
}
