package amd64

import (
	"encoding/hex"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestMayWrite compares with the destinations objdump prints: what writes to the frame or the stack pointer must never
// be missed.
func TestMayWrite(t *testing.T) {
	objdump := testtool.Path(t, "objdump")
	lib := "/lib64/ld-linux-x86-64.so.2"
	if testtool.Wide() {
		lib = "/lib/x86_64-linux-gnu/libc.so.6"
	}
	if _, err := os.Stat(lib); err != nil {
		t.Skip(err)
	}
	line := regexp.MustCompile(`^ *[0-9a-f]+:\t((?:[0-9a-f]{2} )+) *\t(\S+) +(\S+)`)
	names := map[int]*regexp.Regexp{
		RBP: regexp.MustCompile(`(^|,)%(rbp|ebp|bp|bpl)$`),
		RSP: regexp.MustCompile(`(^|,)%(rsp|esp|sp|spl)$`),
	}
	mentions := map[int]*regexp.Regexp{
		RBP: regexp.MustCompile(`%(rbp|ebp|bp|bpl)\b`),
		RSP: regexp.MustCompile(`%(rsp|esp|sp|spl)\b`),
	}
	reads := regexp.MustCompile(`^(cmp|test|bt[lqw]?$|push|call|jmp|mul|div|idiv|imul[lq]?$|nop|data16|notrack)`)
	total, written, wrong := 0, 0, 0
	out, err := exec.Command(objdump, "-d", "-w", lib).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range strings.Split(string(out), "\n") {
		m := line.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		raw, err := hex.DecodeString(strings.ReplaceAll(m[1], " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		in, err := Decode(raw)
		if err != nil || in.Op != Other {
			continue
		}
		total++
		for r, re := range names {
			may := in.MayWrite(r)
			does := re.MatchString(m[3]) && !reads.MatchString(m[2]) &&
				!(strings.HasPrefix(m[2], "imul") && !strings.Contains(m[3], ","))
			if does {
				written++
				if !may {
					t.Errorf("%s: writes register %d", strings.TrimSpace(l), r)
				}
			}
			if may && !mentions[r].MatchString(m[3]) {
				wrong++
			}
		}
	}
	if total < 10000 || written < 100 {
		t.Fatalf("%d instructions, %d writes: objdump's text is not understood", total, written)
	}
	if wrong*100 > total {
		t.Errorf("%d of %d instructions without the register are thought to write to it", wrong, total)
	}
	t.Logf("%d instructions, %d writes, %d thought to write", total, written, wrong)
}
