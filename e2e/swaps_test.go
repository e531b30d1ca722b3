package e2e

import (
	"bufio"
	"cmp"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/debs"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// A swapsProgram is testdata/swaps, whose coroutines' pieces of one stack are copied to and fro.
type swapsProgram struct {
	path     string
	emulator []string
	untraced *result
	leaf     int // calls of its functions
	nested   int
}

// makeSwaps compiles the program, for a kind, with the function that copies in the program or in a library.
func makeSwaps(t *testing.T, k kind, where string) *swapsProgram {
	t.Helper()
	dir, src := t.TempDir(), "testdata/swaps/"
	flags := append([]string{"-O2", "-fno-omit-frame-pointer", "-fno-stack-protector"}, k.cflags...)
	compile := func(out string, args ...string) {
		t.Helper()
		run(t, command{argv: slices.Concat(k.target.compiler(t, k.compiler), []string{"-o", out}, args, flags)}).mustSucceed(t)
	}
	p, more := &swapsProgram{path: filepath.Join(dir, "swaps"), emulator: k.emulation()}, []string{src + "swap.c"}
	if where == "library" {
		lib := filepath.Join(dir, "swap.so")
		compile(lib, "-shared", "-fPIC", "-Wl,-soname,swap.so", src+"swap.c")
		more = []string{lib, "-Wl,-rpath,$ORIGIN"}
	}
	compile(p.path, append([]string{"-rdynamic", src + "main.c"}, more...)...)
	p.untraced = run(t, command{argv: slices.Concat(p.emulator, []string{p.path})})
	if p.untraced.status != "exit 3" || p.untraced.stdout == "" {
		t.Fatalf("%s: %q, %q", p.untraced.status, p.untraced.stdout, p.untraced.stderr)
	}
	p.leaf, p.nested = p.record(t, "-T count")
	if p.leaf == 0 || p.nested == 0 {
		t.Fatalf("%d and %d calls", p.leaf, p.nested)
	}
	return p
}

// record records the program, which is to behave as untraced. It returns how many calls of its functions were recorded.
func (p *swapsProgram) record(t *testing.T, options string) (leaf, nested int) {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	argv := slices.Concat([]string{fentry, "record", "--overhead", "no", "-o", data}, strings.Fields(options), emulatorOptions(p.emulator), []string{p.path})
	sameBehaviour(t, p.untraced, run(t, command{argv: argv}))
	return calls(t, data, "leaf"), calls(t, data, "nested")
}

// check records the program in all ways, and compares the counts.
func (p *swapsProgram) check(t *testing.T) {
	t.Helper()
	for _, options := range []string{"", "-L *", "-T profile", "-T function", "--clock none", "--syscalls", "-F leaf -F nested"} {
		if l, n := p.record(t, options); l != p.leaf || n != p.nested {
			t.Errorf("%q: %d and %d calls, want %d and %d", options, l, n, p.leaf, p.nested)
		}
	}
	p.record(t, "-D 3")
	p.record(t, "-t 1us")
}

// TestSwaps: coroutines whose pieces of one stack are copied to and fro behave as untraced, and all calls are counted, whoever
// traces whichever of their functions: the program that has the function which copies, or a library that nobody has named.
func TestSwaps(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("processes that run are attached to on x86-64")
	}
	needFentry(t)
	for _, where := range []string{"program", "library"} {
		t.Run(where, func(t *testing.T) {
			p := makeSwaps(t, kind{compiler: "gcc"}, where)
			p.check(t)
			attachSwaps(t, p.path, filepath.Join(t.TempDir(), "data"))
		})
	}
}

// TestSwapsARM64 is TestSwaps for arm64, where return addresses that are put back may have to be signed. An emulator's recorder
// sees the libraries that are loaded with the program.
func TestSwapsARM64(t *testing.T) {
	arm64.need(t)
	needFentry(t)
	for _, k := range []kind{
		{name: "gcc"},
		{name: "signed", cflags: []string{"-mbranch-protection=standard"}, cpu: testtool.NewARM64},
		{name: "signed by the other key", cflags: []string{"-mbranch-protection=pac-ret+b-key"}, cpu: testtool.NewARM64},
		{name: "clang", compiler: "clang"},
	} {
		k.target, k.compiler = arm64, cmp.Or(k.compiler, "gcc")
		for _, where := range []string{"program", "library"} {
			if where == "library" && k.name != "gcc" && !testtool.Wide() {
				continue
			}
			t.Run(k.name+"/"+where, func(t *testing.T) {
				t.Parallel()
				makeSwaps(t, k, where).check(t)
			})
		}
	}
}

// attachSwaps records such a program while it runs, again and again.
func attachSwaps(t *testing.T, program, data string) {
	t.Helper()
	const seconds = 8 // on a loaded machine it can take some to attach
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
	for began := time.Now(); time.Since(began) < seconds*time.Second/2; {
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

// addPython puts Debian's Python, with greenlet, into the machine.
func (m *machine) addPython(t *testing.T) {
	t.Helper()
	root := debs.Root(t, "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "python3-greenlet", "zlib1g", "libexpat1")
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		switch dir := filepath.Dir(rel); {
		case filepath.Base(dir) == "aarch64-linux-gnu":
			rel = filepath.Join("lib", filepath.Base(rel)) // where the machine's loader looks
		case !strings.HasPrefix(rel, "usr/lib/python3") && rel != "usr/bin/python3.11":
			return nil
		}
		b, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a link out of the packages
		}
		m.files[rel] = b
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestMachineSwapsARM64 is TestSwaps on an arm64 kernel, where a recorder sees all libraries come, also Python's greenlet.
func TestMachineSwapsARM64(t *testing.T) {
	if !testtool.Wide() {
		t.Skip("Python is run on an emulated kernel only if FENTRY_WIDE is 1")
	}
	t.Parallel()
	kernel, m := newMachine(t)
	p := makeSwaps(t, kind{compiler: "gcc", target: arm64}, "library")
	m.addDir(t, "own", filepath.Dir(p.path))
	m.addPython(t)
	script, err := os.ReadFile("testdata/runtimes/greenlets.py")
	if err != nil {
		t.Fatal(err)
	}
	m.files["own/greenlets.py"] = script
	type traced struct{ job, untraced int }
	var all []traced
	for _, argv := range [][]string{{"./swaps"}, {"/usr/bin/python3.11", "greenlets.py"}} {
		untraced := m.add("/own", argv, nil, nil)
		for _, options := range []string{"", "-L *", "-T profile", "--syscalls"} {
			record := append([]string{"/fentry", "record", "-o", "/tmp/data", "--overhead", "no"}, strings.Fields(options)...)
			all = append(all, traced{m.add("/own", append(record, argv...), nil, nil), untraced})
		}
	}
	outcomes := m.run(t, kernel, 14*time.Minute)
	for _, j := range all {
		if j.job >= len(outcomes) {
			break // which has been reported
		}
		got, want := &outcomes[j.job], &outcomes[j.untraced]
		if want.Status != "exit 3" || got.Err != "" || got.Status != want.Status || string(got.Stdout) != string(want.Stdout) {
			t.Errorf("%v: %s, %s\n%s%s\nuntraced: %s\n%s", m.jobs[j.job].Argv, got.Status, got.Err, got.Stdout, got.Stderr, want.Status, want.Stdout)
		}
	}
}
