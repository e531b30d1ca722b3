package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// postgresSQL makes a table and asks it: what a session of its own does to disk.
const postgresSQL = `create table a(x int, y text);
insert into a select i, md5(i::text) from generate_series(1,20000) i;
select count(*) from a where x % 7 = 0;
create index on a(x);
vacuum a;
checkpoint;
`

// TestSyscallPostgres compares the system calls of postgres, as it makes its files and as it works alone on them, with those
// that strace sees. As a server it waits for its clients, how often is for the scheduler to say.
func TestSyscallPostgres(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("system calls are moved on x86-64")
	}
	programs, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if !testtool.Wide() || len(programs) == 0 {
		t.Skip("55,000 system calls of postgres are compared if FENTRY_WIDE is 1 and it is installed")
	}
	testtool.Need(t, "strace") // setpriv is in all Debian systems
	needFentry(t)
	// It does not run as root, and who it runs as has to reach its files and fentry.
	dir, err := os.MkdirTemp("", "postgres")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	tracer := filepath.Join(dir, "fentry")
	if out, err := exec.Command("cp", fentry, tracer).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var as []string
	if os.Getuid() == 0 {
		const nobody = 65534
		as = []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	home := func(name string) string { return filepath.Join(dir, name) }
	postgres := programs[len(programs)-1]
	numbers := syscallNumbers(t)
	for _, step := range []struct {
		name, input string
		argv        []string // the directory of its files follows
		rest        []string
		timed       []string // how often these are made depends on when the other end of a pipe runs
	}{
		{"initdb", "", []string{filepath.Join(filepath.Dir(postgres), "initdb"), "-N", "-D"}, nil, []string{"read", "ioctl"}},
		{"single", postgresSQL, []string{postgres, "--single", "-D"}, []string{"postgres"}, nil},
	} {
		for way, by := range map[string][]string{
			"strace": {"strace", "-f", "-qq", "-o", home("log-" + step.name)},
			"fentry": {tracer, "record", "-q", "--syscalls", "-F", "none", "-o", home("data-" + step.name)},
		} {
			argv := slices.Concat(as, by, step.argv, []string{home("files-" + way)}, step.rest)
			run(t, command{dir: dir, argv: argv, stdin: step.input, env: []string{"HOME=" + dir, "LC_ALL=C", "TZ=UTC"}}).mustSucceed(t)
		}
		want, have := stracedLog(t, home("log-"+step.name)), recordedSyscalls(t, home("data-"+step.name), numbers)
		want["execve"]-- // the first one, by which the program begins
		for name := range want {
			have[name] += 0
		}
		for name, n := range have {
			more := 0
			if name == "mmap" || name == "mprotect" { // a patched library has one segment more
				more = 1 + want["execve"]
			}
			if d := n - want[name]; (d < 0 || d > more) && !slices.Contains(step.timed, name) {
				t.Errorf("%s: %s: %d, strace has %d", step.name, name, n, want[name])
			}
		}
		if want["openat"] < 100 {
			t.Errorf("%s: strace has %v", step.name, want)
		}
	}
}
