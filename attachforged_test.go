//go:build linux

package fentry_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/session"
)

// Words of a journal's header (session/internal/tracee/journal_linux_amd64.go), and where its list of edits is.
const (
	jVersion, jSize, jState, jRW, jRX, jKind, jBias = 1, 3, 4, 5, 7, 11, 12
	jSum, jEdits, jList, jWaits, jKey, jTraced      = 19, 20, 21, 22, 23, 24
	jRemote, jAreas, jShed, jLeave, jArmed, jThunk  = 26, 28, 29, 30, 31, 35
	jHooks, jHooksList, jHooksSum, jHookPage        = 64, 65, 66, 67

	journalHeader = 4096
)

// A journaled is an abandoned process, as a file, and its program's journal.
type journaled struct {
	mem  *os.File
	at   int64
	was  []byte
	maps string
}

// word returns a word of the journal as it was.
func (j *journaled) word(i int) uint64 { return binary.LittleEndian.Uint64(j.was[8*i:]) }

// find returns where the first mapping of a kind is, by the end of its line.
func (j *journaled) find(perms, name string) uint64 {
	for line := range strings.Lines(j.maps) {
		var lo, hi uint64
		if f := strings.Fields(line); f[1] == perms && strings.HasSuffix(strings.TrimSpace(line), name) {
			if _, err := fmt.Sscanf(f[0], "%x-%x", &lo, &hi); err == nil {
				return lo
			}
		}
	}
	return math.MaxUint64
}

// journalOf finds the journal of a process's program.
func journalOf(t *testing.T, pid int) *journaled {
	t.Helper()
	maps, _, _ := state(t, pid)
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mem.Close() })
	for line := range strings.Lines(maps) {
		var lo, hi int64
		if f := strings.Fields(line); len(f) == 5 && f[1] == "r--p" {
			if _, err := fmt.Sscanf(f[0], "%x-%x", &lo, &hi); err != nil {
				t.Fatal(err)
			}
			j := &journaled{mem: mem, at: lo, was: make([]byte, hi-lo), maps: maps}
			if _, err := mem.ReadAt(j.was, lo); err != nil {
				t.Fatal(err)
			}
			const home = 1
			if bytes.HasPrefix(j.was, []byte("fentry:J")) && j.word(jKind) == home {
				return j
			}
		}
	}
	t.Fatalf("no journal is in\n%s", maps)
	return nil
}

// set has the journal say something else.
func (j *journaled) set(t *testing.T, b []byte, at int) {
	t.Helper()
	if _, err := j.mem.WriteAt(b, j.at+int64(at)); err != nil {
		t.Fatal(err)
	}
}

// codeOf is what a process has where it maps code.
func (j *journaled) codeOf(t *testing.T) (all []byte) {
	t.Helper()
	for line := range strings.Lines(j.maps) {
		var lo, hi int64
		f := strings.Fields(line)
		if !strings.Contains(f[1], "x") || strings.HasSuffix(f[len(f)-1], "]") {
			continue
		}
		if _, err := fmt.Sscanf(f[0], "%x-%x", &lo, &hi); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, hi-lo)
		if _, err := j.mem.ReadAt(b, lo); err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

// startAbandoned starts a program whose recorder is killed.
func startAbandoned(t *testing.T, program string) *controlled {
	t.Helper()
	recorder := buildRecorder(t)
	c := startTold(t, exec.Command(program))
	if _, err := fmt.Sscan(c.line(), &c.pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.in.Close() })
	r := exec.Command(recorder, "record", "-q", "--overhead", "no", "-p", fmt.Sprint(c.pid), "-o", filepath.Join(t.TempDir(), "fentry.data"))
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	c.control("status")
	c.do("work 10")
	r.Process.Kill()
	r.Wait()
	return c
}

// A process that says of the tracer in it what is not so stays as it is, and who was to take the tracer out says why.
func TestAttachForged(t *testing.T) {
	program := buildFile(t, "testdata/control.c", "-fpatchable-function-entry=5")
	c := startAbandoned(t, program)
	j := journalOf(t, c.pid)
	before, code := j.maps, j.codeOf(t)
	text, data, anonymous := j.find("r-xp", program), j.find("rw-p", program), j.find("rw-p", "[heap]")
	first, _ := binary.Uvarint(j.was[journalHeader:]) // where the first edit is
	type list []uint64
	const table, site = 2, 0
	for _, tt := range []struct {
		name string
		word int
		v    any // a word, or a list of edits: how far each is from the one before, and three times its size and its kind
		says string
	}{
		{"no size", jSize, uint64(0), "its size"},
		{"half a page", jSize, j.word(jSize) + 2048, "its size"},
		{"longer than its mapping", jSize, j.word(jSize) + 1<<20, "its size"},
		{"endless", jSize, uint64(1) << 62, "its size"},
		{"another version", jVersion, j.word(jVersion) + 1, "of another fentry"},
		{"no kind", jKind, uint64(99), "its kind"},
		{"data that are a file's", jRW, data, "memory"},
		{"data that are code", jRW, j.word(jRX), "memory"},
		{"data that are not there", jRW, j.word(jRW) - 1<<20, "memory"},
		{"data on no page", jRW, j.word(jRW) + 8, "memory"},
		{"data without an end", jRW + 1, uint64(1) << 63, "memory"},
		{"data that go around", jRW + 1, -j.word(jRW), "memory"},
		{"the heap's data", jRW, anonymous, "functions"},
		{"code of the program", jRX, text, "memory"},
		{"code without an end", jRX + 1, uint64(1) << 40, "memory"},
		{"another place", jBias, j.word(jBias) + 4096, "is not so"},
		{"half a page away", jBias, j.word(jBias) + 8, "memory"},
		{"another file", jSum, j.word(jSum) + 1, "not what it was"},
		{"fewer edits", jEdits, j.word(jEdits) - 1, "not what it was"},
		{"billions of edits", jEdits, uint64(1) << 40, "(code)"},
		{"a long list", jList, uint64(1) << 63, "lists"},
		{"a short list", jList, uint64(1), "(code)"},
		{"billions of waits", jWaits, uint64(1) << 60, "lists"},
		{"a wait where there is no code", jWaits, uint64(1), "system calls"},
		{"a long key", jKey, uint64(1) << 63, "lists"},
		{"billions of functions", jTraced, uint64(1) << 40, "functions"},
		{"all functions there are", jTraced, uint64(1)<<24 - 1, "functions"},
		{"no thunks", jThunk, uint64(0), "functions"},
		{"large thunks", jThunk, uint64(1) << 61, "functions"},
		{"a routine of the program's", jRemote, text - j.word(jBias), "routines"},
		{"switched by another word", jArmed, data - j.word(jBias), "functions"},
		{"billions of hooks", jHooks, uint64(1) << 50, "(code)"},
		{"a long list of hooks", jHooksList, uint64(1) << 50, "hooks"},
		{"other hooks", jHooksSum, j.word(jHooksSum) ^ 1, "not what it was"},
		{"a hook in the program", jHookPage, text, "hooks"},
		{"a large hook", jHookPage + 1, uint64(1) << 30, "hooks"},
		{"edits of no size", jEdits, list{first, 0}, "(code)"},
		{"edits of data", jEdits, list{data, 5*3 + site}, "no code of a file"},
		{"edits of the heap", jEdits, list{anonymous, 5*3 + site}, "no code of a file"},
		{"edits of the tracer", jEdits, list{j.word(jRX), 5*3 + site}, "no code of a file"},
		{"edits of a library", jEdits, list{j.find("r-xp", "libc.so.6"), 5*3 + site}, "(code)"},
		{"edits of what is nowhere", jEdits, list{4096, 8*3 + table}, "(code)"},
		{"edits that overlap", jEdits, list{first, 8*3 + table, math.MaxUint64 - 3, 8*3 + table}, "(code)"},
		{"edits beyond a mapping", jEdits, list{first, 1<<22*3 + table}, "no code of a file"},
		{"endless edits", jEdits, list{first, 1<<50*3 + table}, "(code)"},
		{"edits that are as in the file", jEdits, list{first, 8*3 + table, 64, 8*3 + table}, "not what it was"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			switch v := tt.v.(type) {
			case uint64:
				j.set(t, binary.LittleEndian.AppendUint64(nil, v), 8*tt.word)
			case list:
				var b []byte
				for _, n := range v {
					b = binary.AppendUvarint(b, n)
				}
				b = append(b, make([]byte, 64)...) // what is there
				j.set(t, b, journalHeader)
				j.set(t, binary.LittleEndian.AppendUint64(nil, uint64(len(v)/2)), 8*tt.word)
			}
			defer j.set(t, j.was, 0)
			forged := make([]byte, len(j.was))
			if _, err := j.mem.ReadAt(forged, j.at); err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(forged, j.was) {
				t.Fatal("nothing is forged")
			}
			if err := session.Release(c.pid); err == nil || !strings.Contains(err.Error(), "whose recorder has ended") ||
				!strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, not %q", err, tt.says)
			}
			after := make([]byte, len(j.was))
			if _, err := j.mem.ReadAt(after, j.at); err != nil {
				t.Fatal(err)
			}
			if maps, _, _ := state(t, c.pid); maps != before || !bytes.Equal(j.codeOf(t), code) || !bytes.Equal(after, forged) {
				t.Errorf("the process is not as it was\n%s\n%s", before, maps)
			}
		})
	}
	c.do("work 10")
	c.released(t, program)
}

// released has what a recorder has left taken out of the process, and sees that nothing stays.
func (c *controlled) released(t *testing.T, program string) {
	t.Helper()
	if err := session.Release(c.pid); err != nil {
		t.Error(err)
	}
	if maps, _, _ := state(t, c.pid); hasTracer(maps) || tracersMemory(maps) {
		t.Error(maps)
	}
	unchangedCode(t, c.pid, program)
	c.do("work 10")
}

// alwaysMore is a routine that has done all that it could do at once.
var alwaysMore = []byte{
	0x48, 0x89, 0xf0, // mov %rsi, %rax
	0xc3, // ret
}

// forge has a routine, that a word of the journal names, be another one, and returns what it was.
func (j *journaled) forge(t *testing.T, routine int, code []byte) (was []byte) {
	t.Helper()
	at, was := int64(j.word(jBias)+j.word(routine)), make([]byte, len(code))
	if _, err := j.mem.ReadAt(was, at); err != nil {
		t.Fatal(err)
	}
	if _, err := j.mem.WriteAt(code, at); err != nil {
		t.Fatal(err)
	}
	return was
}

// A process whose routines do not do what the tracer's do keeps nobody who takes the tracer out.
func TestAttachForgedRoutines(t *testing.T) {
	program := buildFile(t, "testdata/control.c", "-fpatchable-function-entry=5")
	const limit = time.Minute
	for _, tt := range []struct {
		name    string
		routine int // the word of the journal that names it
		code    []byte
		says    string
	}{
		{"always more", jShed, alwaysMore, "its runtime gives back more than it can have"},
		{"stacks everywhere", jAreas, []byte{
			0x31, 0xc0, // xor %eax, %eax
			0x48, 0x89, 0x07, // mov %rax, (%rdi)
			0x48, 0xff, 0xc8, // dec %rax
			0x48, 0x89, 0x47, 0x08, // mov %rax, 8(%rdi)
			0xb8, 1, 0, 0, 0, // mov $1, %eax
			0xc3, // ret
		}, "its runtime says that it has more than 64 GiB of stacks"},
		{"the same stacks again and again", jAreas, []byte{
			0x48, 0x89, 0xf0, // mov %rsi, %rax
			0xc7, 0x07, 0, 0, 0, 0, // 1: movl $0, (%rdi)
			0xc7, 0x47, 0x04, 0, 0, 0, 0, // movl $0, 4(%rdi)
			0x48, 0xc7, 0x47, 0x08, 0xff, 0xff, 0xff, 0xff, // movq $-1, 8(%rdi)
			0x48, 0x83, 0xc7, 0x10, // add $16, %rdi
			0x48, 0xff, 0xce, // dec %rsi
			0x75, 0xe2, // jnz 1b
			0xc3, // ret
		}, "its runtime says that it has more than 64 GiB of stacks"},
		{"never gone", jLeave, []byte{
			0x31, 0xc0, // xor %eax, %eax
			0xc3, // ret
		}, "the tracer's code stays in the process, switched off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := startAbandoned(t, program)
			c.do("map 4096")
			j := journalOf(t, c.pid)
			was := j.forge(t, tt.routine, tt.code)
			began := time.Now()
			if err := session.Release(c.pid); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, not %q", err, tt.says)
			}
			if took := time.Since(began); took > limit {
				t.Errorf("it took %v", took)
			}
			c.do("work 10")
			// A process that does what it is to do gets rid of it.
			j.forge(t, tt.routine, was)
			c.released(t, program)
		})
	}
}

// Of several processes one that cannot be recorded, and in which something stays, is named with -q, too; also if there is no other.
func TestAttachLeftOut(t *testing.T) {
	program := buildFile(t, "testdata/control.c", "-fpatchable-function-entry=5")
	recorder := buildRecorder(t)
	const stays = "it is not recorded: the tracer of a recorder that has ended is in it, and cannot be taken out: the tracer's code stays"
	forged := func() *controlled {
		c := startAbandoned(t, program)
		journalOf(t, c.pid).forge(t, jShed, alwaysMore)
		return c
	}
	record := func(pids string, how ...string) (string, error) {
		args := append([]string{"record", "--overhead", "no", "--for", "100ms", "-p", pids, "-o", filepath.Join(t.TempDir(), "fentry.data")}, how...)
		out, err := exec.Command(recorder, args...).CombinedOutput()
		return string(out), err
	}
	one, other := forged(), forged()
	whole := startTold(t, exec.Command(program))
	if _, err := fmt.Sscan(whole.line(), &whole.pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { whole.in.Close() })
	pids := fmt.Sprintf("%d,%d", whole.pid, one.pid)
	said := fmt.Sprintf("fentry: process %d: %s", one.pid, stays)
	if out, err := record(pids, "-q"); err != nil || !strings.HasPrefix(out, said) || strings.Count(out, "\n") != 1 {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := record(pids); err != nil || strings.Count(out, "the tracer's code stays") != 1 {
		t.Errorf("%v\n%s", err, out)
	}
	pids = fmt.Sprintf("%d,%d", one.pid, other.pid)
	if out, err := record(pids, "-q"); err == nil || strings.Count(out, stays) != 2 || !strings.Contains(out, "none of these processes") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, c := range []*controlled{one, other, whole} {
		c.do("work 10")
	}
}
