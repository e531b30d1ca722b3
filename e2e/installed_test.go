package e2e

import (
	"debug/elf"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// An invocation is how a program of the system is run, in an empty directory of its own.
type invocation struct {
	argv  []string
	stdin string
	files map[string]string // put into the directory before
	name  string            // what the program sees as its own, "" for what it is started by
	env   []string          // besides what all have

	timeout time.Duration // default hangs
}

const unit = `
#include <stddef.h>
struct node { struct node *next; int key; };
static int hash(const char *s) { int h = 5381; while (*s) h = h * 33 ^ *s++; return h; }
struct node *insert(struct node **tab, struct node *n, const char *s)
{
	struct node **p = &tab[(n->key = hash(s)) & 63];
	while (*p && (*p)->key < n->key) p = &(*p)->next;
	n->next = *p;
	return *p = n;
}
int sum(struct node **tab) { int s = 0; for (int i = 0; i < 64; i++) for (struct node *n = tab[i]; n; n = n->next) switch (n->key & 7)
	{ case 0: s += 3; break; case 1: s ^= 7; break; case 2: s -= n->key; break; case 3: s <<= 1; break; case 5: s = -s; break; default: s++; } return s; }
`

// installed are programs that make compilers' and linkers' usual code, and use much of it: threads, exceptions of their
// own, signals, fork, jump tables, dlopen. What they print must not depend on when and where they run.
func installed() []invocation {
	text := strings.Repeat("the quick brown fox jumps over the lazy dog\n", 400)
	python := `import json, re, threading, subprocess, os, zlib, struct, decimal
def fib(n): return n if n < 2 else fib(n-1) + fib(n-2)
print(fib(15), json.dumps({'a': [1, 2.5, None, {'b': 'x'}]}), re.findall(r'(\w+)@(\w+)', 'a@b c@d'))
ts = [threading.Thread(target=fib, args=(12,)) for _ in range(4)]
[t.start() for t in ts]; [t.join() for t in ts]
print(subprocess.run(['echo', 'child'], capture_output=True).stdout, zlib.crc32(b'abc'), struct.pack('<Hd', 3, 1.5))
print(decimal.Decimal(2).sqrt(), sorted({3, 1, 2}, key=lambda x: -x))
def gen():
    try:
        yield 1
    finally:
        print('closed')
g = gen(); next(g); g.close()
try: 1/0
except ZeroDivisionError as e: print(e)
if os.fork() == 0: os._exit(3)
print(os.wait()[1]); raise SystemExit(5)
`
	perl := `my %h = map { $_ => length } qw(one two three four); print join(",", map {"$_=$h{$_}"} sort keys %h), "\n";
$_ = "aXbXc"; s/X(.)/<$1>/g; print; print "\n"; eval { die { code => 7 } }; print $@->{code}, "\n";
local $SIG{ALRM} = sub { print "alarm\n" }; kill ALRM => $$; printf "%s %d\n", sprintf("%.3f", atan2(1,1)*4), (fork() ? (wait(), $?>>8)[1] : exit 9);
print pack("NnC", 1, 2, 3) eq "\0\0\0\1\0\2\3" ? "ok\n" : "no\n"; exit 4`
	git := `git init -q . && git -c user.name=a -c user.email=b commit -q --allow-empty -m first --date 2001-02-03T04:05:06Z &&
cp f g && git add . && git -c user.name=a -c user.email=b commit -q -m second && git log --format=%s --stat && git diff --stat HEAD~1 &&
git grep -c fox && git blame -s f | wc -l && git rev-list --count HEAD && git gc -q && git fsck`
	return []invocation{
		{argv: []string{"python3.11", "-c", python}},
		{argv: []string{"perl", "-e", perl}},
		{argv: []string{"bash", "-c", "f() { local i; for i in 1 2 3; do echo $((i * $1)); done; }; f 5 | sort -r; trap 'echo bye' EXIT; [[ ab =~ (b) ]] && echo ${BASH_REMATCH[1]}; (exit 3); echo $?; exit 6"}},
		{argv: []string{"git", "-c", "alias.all=!" + git, "all"}, files: map[string]string{"f": text}},
		{argv: []string{"cc1", "-quiet", "-O2", "-g0", "-o", "-", "u.c"}, files: map[string]string{"u.c": unit}},
		{argv: []string{"cc1plus", "-quiet", "-O1", "-g0", "-o", "-", "u.cc"}, files: map[string]string{"u.cc": "template<class T> T id(T x) { if (x < 0) throw x; return x; }\nint f(int n) { try { return id(n); } catch (int e) { return -e; } }\n"}},
		{argv: []string{"sqlite3", ":memory:"}, stdin: "create table t(a, b); insert into t values (1,'x'),(2,'y'),(3,'z'); select a, upper(b) from t where a > 1 order by b desc; explain query plan select * from t;"},
		{argv: []string{"gzip", "-c"}, stdin: text},
		{argv: []string{"xz", "-T2", "-c", "--block-size=4096"}, stdin: text},
		{argv: []string{"make", "-s", "-j2"}, files: map[string]string{"Makefile": "all: a b\n\t@cat a b\na b:\n\t@echo $@ > $@\n"}},
		{argv: []string{"gdb", "-nx", "-batch", "-ex", "print 6*7", "-ex", "python print(sum(range(9)))", "-ex", "info line main", "/bin/true"}},
		{argv: []string{"objdump", "-d", "--no-show-raw-insn", "--stop-address=0x3000", "/bin/true"}},
		{argv: []string{"awk", "{ n[$1]++; s += length } END { for (k in n) print k, n[k]; print s, substr(\"hello\", 2, 3) }"}, stdin: text},
		{argv: []string{"sort", "-k3,3", "-r", "--parallel=2"}, stdin: text},
	}
}

// needProgram is [programFile] of a program without which the test is skipped.
func needProgram(t *testing.T, name string) string {
	t.Helper()
	file := programFile(name)
	if file == "" {
		t.Skip("not installed")
	}
	return file
}

// programFile is the ELF file of a program of the system, "" if there is none that is for this machine.
func programFile(name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		out, err := exec.Command("gcc", "-print-prog-name="+name).Output()
		if path = strings.TrimSpace(string(out)); err != nil || !filepath.IsAbs(path) {
			return ""
		}
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return ""
	}
	f, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if f.Machine != elf.EM_X86_64 || f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return ""
	}
	return path
}

// TestInstalled traces programs as they are installed, which no compiler has prepared, and compares with the untraced
// run. Programs behave the same if they run twice untraced; those that do not are told nothing about.
func TestInstalled(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("programs without sites are traced on x86-64")
	}
	needFentry(t)
	for _, in := range installed() {
		t.Run(in.argv[0], func(t *testing.T) {
			t.Parallel()
			file := needProgram(t, in.argv[0])
			in.compare(t, file, true)
		})
	}
}

// run runs it in a fresh directory: the file at path, behind words such as those of fentry record.
func (in *invocation) run(t *testing.T, path string, words ...string) *result {
	t.Helper()
	dir := t.TempDir()
	for name, text := range in.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := command{dir: dir, stdin: in.stdin, timeout: in.timeout,
		env: []string{"HOME=" + dir, "LC_ALL=C", "TZ=UTC", "GIT_COMMITTER_DATE=2001-02-03T04:05:06Z", "GIT_AUTHOR_DATE=2001-02-03T04:05:06Z"}}
	c.env = append(c.env, in.env...)
	c.argv = append(append(words, path), in.argv[1:]...)
	if len(words) == 0 {
		c.argv0 = in.name
	}
	if data := os.Getenv("FENTRY_DATA"); data != "" {
		t.Fatalf("FENTRY_DATA is %s", data)
	}
	return run(t, c)
}

// longest is how long a program may run that nobody has chosen: a patched copy records all that it does.
const longest = 2 * time.Second

// compare compares untraced runs with a recorded one and one of a patched copy, and reports whether it could.
func (in *invocation) compare(t *testing.T, file string, must bool) bool {
	t.Helper()
	in.name = file // as it is when it is recorded
	began := time.Now()
	want := in.run(t, file)
	if !must && time.Since(began) > longest {
		return false
	}
	again := in.run(t, file)
	if want.stdout != again.stdout || want.stderr != again.stderr || want.status != again.status || want.err != nil {
		if must {
			t.Fatalf("two untraced runs differ: %s, %s\n%s\n%s", want.status, again.status, clip(want.stdout), clip(again.stdout))
		}
		return false
	}
	data := filepath.Join(t.TempDir(), "data")
	got := in.run(t, file, fentry, "record", "-q", "-o", data)
	sameBehaviour(t, want, got)
	if d, err := decode(data); err != nil {
		t.Errorf("trace: %v", err)
	} else if d.events == 0 && must || d.lost != 0 {
		t.Errorf("%d events, %d lost", d.events, d.lost)
	}
	patched := filepath.Join(t.TempDir(), filepath.Base(file))
	if !must { // a program may look for what stands beside it
		b, err := os.ReadFile(file)
		if err == nil {
			err = runfile.WriteFile(patched, b)
		}
		if err != nil {
			t.Fatal(err)
		}
		if moved := in.run(t, patched); moved.stdout != want.stdout || moved.stderr != want.stderr || moved.status != want.status {
			return true
		}
	}
	patchFile(t, file, patched, []string{"--force", "--data", filepath.Join(t.TempDir(), "data")})
	sameBehaviour(t, want, in.run(t, patched))
	return true
}

// TestInstalledWide does the same with many programs of the system and what they say of themselves.
func TestInstalledWide(t *testing.T) {
	if !testtool.Wide() {
		t.Skip("FENTRY_WIDE is not 1")
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("programs without sites are traced on x86-64")
	}
	needFentry(t)
	for _, file := range systemPrograms(400) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			if out := run(t, command{argv: []string{fentry, "list", file}}); strings.TrimSpace(out.stdout) == "" {
				t.Skip("nothing can be traced: it is Go's, or all its functions are elsewhere")
			}
			same := 0
			for _, args := range [][]string{{"--version"}, {"--help"}, {}} {
				in := invocation{argv: append([]string{filepath.Base(file)}, args...), timeout: 2 * time.Minute} // for more than 100 MB
				if in.compare(t, file, false) {
					same++
				}
			}
			if same == 0 {
				t.Skip("its runs differ untraced")
			}
		})
	}
}

// systemPrograms are some of the programs that are installed, always the same ones.
func systemPrograms(n int) []string {
	var files []string
	seen := map[string]bool{}
	not := slices.Concat(notAlone, changing)
	for _, dir := range []string{"/usr/bin", "/usr/sbin", "/usr/lib/git-core"} {
		list, _ := os.ReadDir(dir)
		for _, e := range list {
			file := programFile(filepath.Join(dir, e.Name()))
			if file == "" || seen[file] || slices.Contains(not, e.Name()) || slices.Contains(not, filepath.Base(file)) {
				continue
			}
			seen[file] = true
			files = append(files, file)
		}
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	return files[:min(len(files), n)]
}

// changing print what else happens on the machine, or in the order in which their children end: two runs can be the
// same, and a third one not. fprcp prints its own stack, with the address of a call that has moved.
var changing = strings.Fields(`free groff lslocks lslogins lsns pstree fprcp fprcp-3.2.2`)

// notAlone change the machine, or wait for somebody, when they are started alone. A file is one of them by any of its names:
// pidof is a link to killall5, which ends all that runs.
var notAlone = strings.Fields(`reboot shutdown halt poweroff init telinit login su sulogin runuser agetty getty kill killall
	killall5 pkill passwd chsh chfn newgrp dd wipefs swapon swapoff losetup mount umount chroot unshare top vi vim.basic less
	more watch script sleep yes fdisk cfdisk sfdisk hwclock rtcwake apt dpkg logger wall sshd ssh-agent gpg-agent dirmngr
	tmux screen nano ldconfig update-alternatives orte-server pwconv pwunconv grpconv grpunconv faked-sysv faked-tcp fentry`)
