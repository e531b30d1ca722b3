package buildstep

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzJobserverAuth: what make says is found among whatever else is in MAKEFLAGS, and the last one counts.
func FuzzJobserverAuth(f *testing.F) {
	f.Add(" -j3 --jobserver-auth=3,4 -- X=y", "fifo:/tmp/GMfifo1")
	f.Add("kw -j --jobserver-fds=5,6", "3,4")
	f.Add("--jobserver-auth=", "-2,-2")
	f.Fuzz(func(t *testing.T, flags, auth string) {
		got := jobserverAuth(flags)
		if got != "" && (!strings.Contains(flags, "="+got) || len(strings.Fields(got)) != 1) {
			t.Errorf("%q in %q", got, flags)
		}
		if got == "" && strings.Contains(" "+flags, " --jobserver-auth=x") {
			t.Errorf("nothing in %q", flags)
		}
		if len(strings.Fields(auth)) != 1 || strings.TrimSpace(auth) != auth {
			return
		}
		for _, o := range []string{" --jobserver-auth=", " --jobserver-fds="} {
			if got := jobserverAuth(flags + o + auth); got != auth {
				t.Errorf("%q in %q", got, flags+o+auth)
			}
			if got := jobserverAuth(strings.ReplaceAll(flags, "jobserver", "") + o + auth + " -w"); got != auth {
				t.Errorf("%q before -w", got)
			}
		}
	})
}

// TestJobserverNoPipe: what is no pipe is not used, and a file that MAKEFLAGS names is left as it is.
func TestJobserverNoPipe(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("contents"), 0o666); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for auth, ok := range map[string]bool{
		"fifo:" + file: false, "fifo:" + dir: false, "fifo:": false, "fifo:" + fifo: true, "0": false, "-2,-2": false, "1000000,1000000": false, "a,b": false, ",": false,
		"99999999999999999999,1": false,
	} {
		t.Setenv("MAKEFLAGS", "--jobserver-auth="+auth)
		s := openSlots()
		if (s != nil) != ok {
			t.Errorf("%s: %v", auth, s)
		}
		s.close()
	}
}

// readWords reads a rule as GNU make does: a backslash takes a blank, # or :, in targets also %, two before those are
// one, and $$ is $.
func readWords(line string) (words []string) {
	var w []byte
	in := false
	end := func() {
		if in {
			words = append(words, string(w))
		}
		w, in = w[:0], false
	}
	special := " \t#:%"
	for i := 0; i < len(line); i++ {
		n := i
		for n < len(line) && line[n] == '\\' {
			n++
		}
		if n > i {
			in = true
			if n == len(line) || strings.IndexByte(special, line[n]) < 0 {
				w, i = append(w, line[i:n]...), n-1
				continue
			}
			w = append(w, line[i:i+(n-i)/2]...)
			if (n-i)%2 == 1 {
				w, i = append(w, line[n]), n
				continue
			}
			i = n
		}
		switch c := line[i]; {
		case c == ' ' || c == '\t':
			end()
			continue
		case c == ':':
			end()
			words = append(words, ":")
			special = special[:4]
			continue
		case c == '$' && i+1 < len(line) && line[i+1] == '$':
			i++
		}
		w, in = append(w, line[i]), true
	}
	end()
	return words
}

// FuzzDepfile: what is written is read back.
func FuzzDepfile(f *testing.F) {
	path := filepath.Join(f.TempDir(), "deps")
	f.Add("foo.o", "a b.c", "$x#y:z")
	f.Add(`a\ b`, `c\\ d`, `e\#f`)
	f.Add("a\tb", `end\`, "%=[*")
	f.Fuzz(func(t *testing.T, target, one, two string) {
		names := []string{target, one, two}
		for _, n := range names {
			if n == "" {
				return
			}
		}
		if err := WriteDepfile(path, []Rule{{target, []string{one, two}}}); err != nil {
			return
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(b), " \\\n", " ")
		var got [][]string
		for line := range strings.Lines(text) {
			if w := readWords(strings.TrimSuffix(line, "\n")); len(w) > 0 {
				got = append(got, w)
			}
		}
		want := [][]string{{target, ":", one, two}, {one, ":"}, {two, ":"}}
		if one == two {
			want = want[:2]
		}
		if !slices.EqualFunc(got, want, slices.Equal[[]string]) {
			t.Errorf("%q, want %q; from\n%s", got, want, b)
		}
	})
}
