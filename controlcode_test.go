//go:build linux

package fentry_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// toldPerl has perl do what it is told: work, or fork a child that does nothing until it can read no more.
const toldPerl = `$| = 1; print "$$\n"; pipe(my $until, my $end);
while (<STDIN>) {
	if (/^fork/) { my $pid = fork(); if (!$pid) { close($end); close(STDOUT); <$until>; exit } print "$pid\n" }
	else { my %h = map { $_ => $_ * $_ } 1..50; my $n = 0; $n += $_ for values %h; die if $n != 42925 }
	print "done\n";
}
close($end); 1 while wait > 0;`

// The code of the program is mapped from a copy in which it was changed before. What is off gets the file's pages back, in children
// as well, and is recorded when it is on again. A recording whose plan was kept is controlled as the one before.
func TestControlCode(t *testing.T) {
	perl := perlFile(t)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	for _, name := range []string{"made", "made before"} {
		t.Run(name, func(t *testing.T) {
			c := startControlledProgram(t, false, fentry.Options{}, exec.Command(perl, "-e", toldPerl))
			child := c.fork()
			codes := func(what, want string) {
				t.Helper()
				for _, pid := range []int{c.pid, child} {
					paths, dirty := codeOf(t, pid, perl)
					for _, path := range paths {
						if filepath.Base(path) != filepath.Base(perl) || !strings.HasPrefix(path, want) || want == perl && dirty > 0 {
							t.Errorf("%s: process %d has code of %s, and %d KiB of its own", what, pid, path, dirty)
						}
					}
					if len(paths) == 0 {
						t.Errorf("%s: process %d has no code", what, pid)
					}
				}
			}
			codes("at first", filepath.Join(cache, "fentry", "code"))
			files := openFiles(t, c.pid)
			c.do("work")
			c.control("arguments = Perl_pp_wait@arg1")
			if got := c.control("arguments"); got != "Perl_pp_wait@arg1" {
				t.Errorf("arguments %q", got)
			}
			c.control("arguments =; set_ftrace_notrace = *")
			c.control("settle")
			codes("all off", perl)
			c.do("work")
			if now := openFiles(t, c.pid); now != files {
				t.Errorf("open files %s became %s", files, now)
			}
			c.control("set_ftrace_notrace =; set_ftrace_filter = Perl_pp_mapwhile")
			c.control("settle")
			c.do("work")
			c.control("set_ftrace_filter =")
			c.control("settle")
			c.do("work")
			c.control("set_ftrace_notrace = *")
			c.control("settle")
			codes("all off again", perl)
			if calls := c.calls(); calls["Perl_pp_mapwhile"] != 3*50 || calls["Perl_pp_multiply"] != 2*50 {
				t.Errorf("calls %d and %d, want %d and %d", calls["Perl_pp_mapwhile"], calls["Perl_pp_multiply"], 3*50, 2*50)
			}
		})
	}
}

// perlFile is perl's own file.
func perlFile(t *testing.T) string {
	t.Helper()
	testtool.Need(t, "perl")
	path, err := exec.LookPath("perl")
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// fork has the program make a child.
func (c *controlled) fork() (pid int) {
	c.t.Helper()
	fmt.Fprintln(c.in, "fork")
	if _, err := fmt.Sscan(c.line(), &pid); err != nil {
		c.t.Fatal(err)
	}
	if got := c.line(); got != "done" {
		c.t.Fatalf("the program says %q", got)
	}
	return pid
}

// codeOf returns what a process has mapped its program's code and headers from, and how many KiB of that are its own. The
// tracer's code can be in the same file, behind the program's.
func codeOf(t *testing.T, pid int, program string) (paths []string, dirty int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	is := false
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		switch n := 0; {
		case strings.Contains(f[0], "-"):
			is = len(f) > 5 && (f[1] == "r-xp" || f[1] == "r--p" && f[2] == "00000000") && filepath.Base(f[5]) == filepath.Base(program)
			if is {
				offset, err := strconv.ParseInt(f[2], 16, 64)
				is = err == nil && offset < st.Size()
			}
			if is {
				paths = append(paths, f[5])
			}
		case is && f[0] == "Anonymous:":
			fmt.Sscan(f[1], &n)
			dirty += n
		}
	}
	return paths, dirty
}

// openFiles are the numbers of a process's open files.
func openFiles(t *testing.T, pid int) (all string) {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all += e.Name() + " "
	}
	return all
}

// Programs that live on when they are recorded no more, and keep the tracer, run their own code: those that were started, their
// children, and what processes have executed that were attached to.
func TestControlLivesOn(t *testing.T) {
	perl := perlFile(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	check := func(c *controlled, end func(), pids ...int) {
		t.Helper()
		var was []int
		for _, pid := range pids {
			was = append(was, changed(t, pid, perl))
		}
		c.do("work")
		end()
		c.do("work")
		// Jumps from a site to its thunk stay, in the middle of which a thread can be. They are few, and nothing leads there.
		for i, pid := range pids {
			if is := changed(t, pid, perl); was[i] < 10_000 || is > was[i]/50 {
				t.Errorf("process %d: %d bytes of its code are changed, %d were", pid, is, was[i])
			}
		}
	}
	for _, name := range []string{"started", "started again"} { // by a plan that was kept
		t.Run(name, func(t *testing.T) {
			c := startControlledProgram(t, false, fentry.Options{}, exec.Command(perl, "-e", toldPerl))
			check(c, func() {
				c.control("detach")
				if res := <-c.ended; res == nil || res.Lost > 0 {
					t.Fatalf("%+v", res)
				}
			}, c.pid, c.fork())
		})
	}
	t.Run("executed", func(t *testing.T) {
		cmd := exec.Command("sh", "-c", `echo; read x; "$@"; exit 3`, "sh", perl, "-e", toldPerl)
		c := startTold(t, cmd)
		t.Cleanup(func() { c.in.Close(); cmd.Wait() })
		c.line()
		rec := recordOne(t, cmd.Process.Pid, fentry.Options{})
		fmt.Fprintln(c.in)
		var pid int
		if _, err := fmt.Sscan(c.line(), &pid); err != nil {
			t.Fatal(err)
		}
		check(c, func() { rec.end(t) }, pid, c.fork())
	})
}

// changed is how many bytes of a process's program are not as in its file.
func changed(t *testing.T, pid int, program string) (n int) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "r-xp" || filepath.Base(f[5]) != filepath.Base(program) {
			continue
		}
		var lo, hi, offset int
		if _, err := fmt.Sscanf(f[0]+" "+f[2], "%x-%x %x", &lo, &hi, &offset); err != nil {
			t.Fatal(err)
		}
		if offset+hi-lo > len(file) {
			continue // the tracer's, behind the program's
		}
		b := make([]byte, hi-lo)
		if _, err := mem.ReadAt(b, int64(lo)); err != nil {
			t.Fatal(err)
		}
		for i := range b {
			if b[i] != file[offset+i] {
				n++
			}
		}
	}
	return n
}
