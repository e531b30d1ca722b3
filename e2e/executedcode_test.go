package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// mapsOfPerl is a program for perl that prints where its code has been mapped from, and how much else from there, and works.
const mapsOfPerl = `use feature "current_sub"; my $name = readlink("/proc/self/exe") =~ s|.*/||r; my ($code, %n) = "";
open(my $maps, "<", "/proc/self/maps") or die;
while (<$maps>) {
	my @f = split(" ", $_); my $path = $f[5] // "";
	next if $f[1] ne "r-xp";
	$n{$path}++;
	$code = $path if $code eq "" && $path =~ m|/\Q$name\E$|;
}
print "$code $n{$code}\n";
if (fork() == 0) { my %h = map { $_ => $_ * $_ } 1..50; print join(",", sort { $a <=> $b } values %h), "\n"; exit 3 }
wait; print $? >> 8, "\n"; my $f = sub { my $n = shift; $n < 2 ? $n : __SUB__->($n - 1) }; print $f->(20), "\n";`

// TestExecutedCode: the code of a program that is executed again is mapped from a file in which it was changed before, and the
// program and what is recorded of it are the same; where that file cannot be had it is changed in the process.
func TestExecutedCode(t *testing.T) {
	perl := needProgram(t, "perl")
	cache, dir := t.TempDir(), t.TempDir()
	script := filepath.Join(dir, "p.pl")
	if err := os.WriteFile(script, []byte(mapsOfPerl), 0o666); err != nil {
		t.Fatal(err)
	}
	env := []string{"XDG_CACHE_HOME=" + cache}
	inside := fmt.Sprintf("%s %s; %s %s", perl, script, perl, script)
	calls := func(name string, env []string, argv ...string) (codes []string, report string) {
		t.Helper()
		want := run(t, command{argv: argv})
		data := filepath.Join(t.TempDir(), "data")
		r := run(t, command{argv: append([]string{fentry, "record", "-q", "--overhead", "no", "-o", data}, argv...), env: env})
		lines := strings.SplitAfter(r.stdout, "\n")
		for i, line := range lines {
			if strings.HasPrefix(line, "/") {
				codes = append(codes, strings.TrimSpace(line))
				lines[i] = perl + " 1\n"
			}
		}
		if got := strings.Join(lines, ""); got != want.stdout || r.status != want.status || len(codes) != 2 {
			t.Errorf("%s: %s %q, untraced %s %q: %s", name, r.status, r.stdout, want.status, want.stdout, r.stderr)
		}
		// How deep hashes are searched is random, so some functions are called more often than in another run.
		p := run(t, command{argv: []string{fentry, "report", "-f", "calls", "-F", "Perl_pp_entersub", "-F", "perl_run", "-F", "Perl_pp_print",
			"-F", "Perl_pp_fork", "-F", "Perl_my_exit", data}})
		sorted := strings.Split(p.stdout, "\n") // some are called as often as others
		slices.Sort(sorted)
		return codes, strings.Join(sorted, "\n")
	}
	nowhere := []string{"XDG_CACHE_HOME=/proc/self/nothing"}
	inPlace, want := calls("without a cache", nowhere, "sh", "-c", inside)
	for _, code := range inPlace {
		if code != perl+" 1" {
			t.Errorf("without a cache: code from %s", code)
		}
	}
	if len(regexp.MustCompile(`(?m)^ *[1-9]`).FindAllString(want, -1)) < 4 {
		t.Fatalf("functions are missing:\n%s", want)
	}
	for _, name := range []string{"made", "made before"} {
		codes, have := calls(name, env, "sh", "-c", inside)
		for _, code := range codes {
			// What is added comes from there, too.
			if filepath.Base(code) != filepath.Base(perl)+" 2" || !strings.HasPrefix(code, filepath.Join(cache, "fentry", "code")) {
				t.Errorf("%s: code from %s", name, code)
			}
		}
		if have != want {
			t.Errorf("%s:\n%s\nin place:\n%s", name, have, want)
		}
	}

	t.Run("another file there", func(t *testing.T) {
		testtool.Need(t, "unshare")
		hidden := []string{"unshare", "-m", "sh", "-c", fmt.Sprintf("mount -t tmpfs none %s && { %s; }", cache, inside)}
		if r := run(t, command{argv: hidden}); r.status != "exit 0" {
			t.Skipf("no mounts here: %s", r.stderr)
		}
		codes, have := calls("hidden", env, hidden...)
		for _, code := range codes {
			if code != perl+" 1" {
				t.Errorf("code from %s", code)
			}
		}
		if have != want {
			t.Errorf("%s\nin place:\n%s", have, want)
		}
	})
	t.Run("damaged", func(t *testing.T) {
		kept, err := filepath.Glob(filepath.Join(cache, "fentry", "code", "*", filepath.Base(perl)))
		if err != nil || len(kept) != 1 {
			t.Fatalf("%q, %v", kept, err)
		}
		if err := os.Truncate(kept[0], 4096); err != nil {
			t.Fatal(err)
		}
		codes, have := calls("damaged", env, "sh", "-c", inside)
		if have != want || codes[0] != kept[0]+" 2" {
			t.Errorf("code from %s\n%s\nin place:\n%s", codes[0], have, want)
		}
	})
}
