package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/debs"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// A foreign program is one of Debian's for arm64, and how it is run.
type foreign struct {
	path string // below the root
	invocation
}

// arm64Lost are how many events of a program may be lost: those of C functions that C calls in slots which exceptions of OCaml's
// have left, as nothing says that no coroutine has them.
var arm64Lost = map[string]uint64{"unison-2.52": 20}

// arm64Packages are those with the programs of arm64Installed, and what they are linked with.
var arm64Packages = strings.Fields(`libc6 libgcc-s1 zlib1g libtinfo6 bash perl-base libcrypt1 python3.11-minimal libpython3.11-minimal
	libexpat1 coreutils libselinux1 libpcre2-8-0 libacl1 libattr1 libgmp10 sqlite3 libsqlite3-0 libreadline8 git gzip xz-utils
	liblzma5 mawk make unison-2.52 cpp-12 libisl23 libmpc3 libmpfr6 libzstd1 sed grep tar diffutils`)

// arm64Installed are programs of the packages. What they start is this machine's.
func arm64Installed() []foreign {
	text := strings.Repeat("the quick brown fox jumps over the lazy dog\n", 400)
	python := `import re, sys, _thread, time
def fib(n): return n if n < 2 else fib(n-1) + fib(n-2)
print(fib(12), sorted({3, 1, 2}, key=lambda x: -x), 2**200, 1.5e300, 'x'.join('abc'))
def gen():
    try:
        yield 1
    finally:
        print('closed')
g = gen(); next(g); g.close()
try: 1/0
except ZeroDivisionError as e: print(e)
done = _thread.allocate_lock(); done.acquire()
_thread.start_new_thread(lambda: (print(fib(10)), done.release()), ())
done.acquire(); raise SystemExit(5)
`
	perl := `my %h = map { $_ => length } qw(one two three four); print join(",", map {"$_=$h{$_}"} sort keys %h), "\n";
$_ = "aXbXc"; s/X(.)/<$1>/g; print; print "\n"; eval { die { code => 7 } }; print $@->{code}, "\n";
local $SIG{ALRM} = sub { print "alarm\n" }; kill ALRM => $$; printf "%s %d\n", sprintf("%.3f", atan2(1,1)*4), (fork() ? (wait(), $?>>8)[1] : exit 9);
print pack("NnC", 1, 2, 3) eq "\0\0\0\1\0\2\3" ? "ok\n" : "no\n"; exit 4`
	bash := `f() { local i; for i in 1 2 3; do echo $((i * $1)); done; }; f 5; trap 'echo bye' EXIT
[[ ab =~ (b) ]] && echo ${BASH_REMATCH[1]}; (exit 3); echo $?; a=(x y z); echo ${a[@]^^} ${#a[*]}; printf '%q\n' "a b"; exit 6`
	return []foreign{
		{"usr/bin/python3.11", invocation{argv: []string{"python3.11", "-S", "s.py"},
			files: map[string]string{"s.py": strings.Replace(python, "re, sys, ", "", 1)}}},
		{"usr/bin/perl", invocation{argv: []string{"perl", "-e", perl}}},
		{"bin/bash", invocation{argv: []string{"bash", "-c", bash}}},
		{"usr/bin/git", invocation{argv: []string{"git", "diff", "--no-index", "--stat", "-p", "f", "g"},
			files: map[string]string{"f": text, "g": strings.Replace(text, "quick", "slow", 3)}}},
		{"usr/lib/gcc/aarch64-linux-gnu/12/cc1", invocation{argv: []string{"cc1", "-quiet", "-O2", "-g0", "-o", "-", "u.c"},
			files: map[string]string{"u.c": unit}}},
		{"usr/bin/sqlite3", invocation{argv: []string{"sqlite3", ":memory:"}, stdin: "create table t(a, b); insert into t values (1,'x'),(2,'y'),(3,'z');" +
			" select a, upper(b) from t where a > 1 order by b desc; explain query plan select * from t;"}},
		{"usr/bin/unison-2.52", invocation{argv: []string{"unison-2.52", "-doc", "tutorial"}}},
		{"bin/gzip", invocation{argv: []string{"gzip", "-c"}, stdin: text}},
		{"usr/bin/xz", invocation{argv: []string{"xz", "-T2", "-c", "--block-size=4096"}, stdin: text}},
		{"usr/bin/make", invocation{argv: []string{"make", "-s", "-n", "-j2"}, files: map[string]string{"Makefile": "all: a b\n\tcat a b\na b:\n\techo $@ > $@\n"}}},
		{"usr/bin/mawk", invocation{argv: []string{"mawk", "{ n[$1]++; s += length } END { for (k in n) print k, n[k]; print s, substr(\"hello\", 2, 3) }"}, stdin: text}},
		{"usr/bin/sort", invocation{argv: []string{"sort", "-k3,3", "-r", "--parallel=2"}, stdin: text}},
		{"bin/sed", invocation{argv: []string{"sed", "-n", "s/\\(q[a-z]*\\) \\(b.*n\\)/\\2 \\1/p"}, stdin: text}},
		{"bin/grep", invocation{argv: []string{"grep", "-c", "-E", "(fox|dog)$"}, stdin: text}},
	}
}

// TestInstalledARM64 is TestInstalled for Debian's programs for arm64, under qemu-user, and with their libraries.
func TestInstalledARM64(t *testing.T) {
	arm64.need(t)
	needFentry(t)
	root := debs.Root(t, arm64Packages...)
	emulator := []string{testtool.Path(t, arm64.emulator[0]), "-L", root}
	for _, p := range arm64Installed() {
		name := filepath.Base(p.path)
		if !testtool.Wide() && (name == "cc1" || name == "python3.11") {
			continue // which take long in an emulator
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := filepath.EvalSymlinks(filepath.Join(root, p.path))
			if err != nil {
				t.Fatal(err)
			}
			want := p.run(t, file, emulator...)
			if want.err != nil || strings.HasPrefix(want.status, "signal") || want.stdout == "" {
				t.Fatalf("untraced: %s: %v\n%s%s", want.status, want.err, clip(want.stdout), clip(want.stderr))
			}
			for _, options := range []string{"", "-L *"} {
				data := filepath.Join(t.TempDir(), "data")
				record := slices.Concat([]string{fentry, "record", "-q", "-o", data}, emulatorOptions(emulator), strings.Fields(options))
				sameBehaviour(t, want, p.run(t, file, record...))
				if d, err := decode(data); err != nil {
					t.Errorf("%s: trace: %v", options, err)
				} else if d.events == 0 || uint64(d.lost) > arm64Lost[name] {
					t.Errorf("%s: %d events, %d lost", options, d.events, d.lost)
				} else {
					t.Logf("%s: %d events", options, d.events)
				}
			}
			patched := filepath.Join(t.TempDir(), name)
			patchFile(t, file, patched, []string{"--force", "--data", filepath.Join(t.TempDir(), "data")})
			sameBehaviour(t, want, p.run(t, patched, emulator...))
		})
	}
}
