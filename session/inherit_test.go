//go:build linux

package session

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/fixture"
)

// hostile starts a program with as much as possible other than usual.
const hostile = `
trap '' PIPE QUIT USR1 TERM CHLD TSTP PROF SEGV
ulimit -Sn 3000; ulimit -Ss 4096; umask 027
exec 7<"$0.in" 9>>/dev/null
export A= B="two
lines"
unset _
cd /
exec "$@"
`

// A program starts with exactly what it would have inherited from the shell.
func TestInheritance(t *testing.T) {
	state := fixture.CC(t, "testdata/state")
	script := t.TempDir() + "/hostile.sh"
	if err := os.WriteFile(script, []byte(hostile), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script+".in", []byte("input"), 0o666); err != nil {
		t.Fatal(err)
	}
	shells := map[string][]string{
		"hostile": {"bash", script},
		"blocked": {fixture.CC(t, "testdata/blocked")},
		"plain":   {"env", "-i", "A=1", "PATH=/bin"},
		"nohup":   {"nohup"},
	}
	for name, prefix := range shells {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(prefix[0], append(prefix[1:], state, "arg")...)
			cmd.Stdin = strings.NewReader("")
			want, err := cmd.Output()
			if err != nil {
				t.Fatalf("untraced: %v", err)
			}
			try := func(r recorderCmd, how string) {
				r.prefix = prefix
				c := r.command(t, state, "arg")
				c.Stdin = strings.NewReader("")
				var out, errb bytes.Buffer
				c.Stdout, c.Stderr = &out, &errb
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				x := r.finish(t, c, &out, &errb)
				if x.code != 0 || x.stderr != "" {
					t.Errorf("%s: status %d: %s", how, x.code, x.stderr)
				}
				if d := cmp.Diff(comparable(string(want), how), comparable(x.stdout, how)); d != "" {
					t.Errorf("%s, untraced -, traced +:\n%s", how, d)
				}
			}
			try(recorderCmd{}, "untraced")
			if runtime.GOARCH == "amd64" {
				try(recorderCmd{Memory: harmless(t, state)}, "ptrace")
				try(recorderCmd{Memory: harmless(t, state), Copy: state, NoPtrace: true}, "copy")
			}
		})
	}
}

// comparable leaves out what differs from run to run: numbers of pipes and
// sockets; and for a copy its path.
func comparable(s, how string) []string {
	s = regexp.MustCompile(`(pipe|socket):\[\d+\]`).ReplaceAllString(s, "$1")
	if how == "copy" {
		s = regexp.MustCompile(`(?m)^exe .*$`).ReplaceAllString(s, "exe")
	}
	if how != "ptrace" {
		// The Go runtime cannot ignore these itself.
		s = regexp.MustCompile(`(?m)^signal (11|27) .*$|^.*SigIgn.*$`).ReplaceAllString(s, "")
	}
	return strings.Split(s, "\n")
}

// harmless is a plan that adds memory, and changes and prints nothing.
func harmless(t *testing.T, path string) *patch.Memory {
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	end := uint64(0)
	for _, p := range f.Progs {
		end = max(end, p.Vaddr+p.Memsz)
	}
	m := &patch.Memory{OrigEntry: f.Entry, RXAddr: (end + 1<<30) &^ 0xfff}
	m.Entry = m.RXAddr
	m.RX = le.AppendUint32([]byte{0xe9}, uint32(f.Entry-(m.RXAddr+5))) // jmp entry
	return m
}
