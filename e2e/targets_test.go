package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestBranchTargets holds the proof that nothing goes into the middle of displaced instructions against what is executed:
// it runs untraced programs in an emulator, which tells where it begins to translate, and so every target of a branch,
// whatever it was computed from. What follows a branch among the displaced instructions is no such target.
func TestBranchTargets(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("programs without sites are traced on x86-64")
	}
	testtool.Need(t, "qemu-x86_64")
	needFentry(t)
	list := installed()
	for i := range list {
		in := &list[i]
		switch name := in.argv[0]; name {
		case "perl", "bash", "cc1", "sqlite3", "make", "python3.11", "git":
			if !testtool.Wide() && (name == "python3.11" || name == "cc1") {
				continue // which take long in an emulator
			}
		default:
			if !testtool.Wide() {
				continue
			}
		}
		t.Run(in.argv[0], func(t *testing.T) {
			t.Parallel()
			file := needProgram(t, in.argv[0])
			inside, windows := middles(t, file)
			entered, begun := 0, 0
			for pc := range in.translated(t, file) {
				begun++
				if windows[pc] {
					entered++
				}
				if site, ok := inside[pc]; ok {
					t.Errorf("%#x is branched to, in the instructions displaced at %#x", pc, site)
				}
			}
			if entered == 0 {
				t.Errorf("none of %d functions was entered, %d targets", len(windows), begun)
			}
			t.Logf("%d targets, %d of %d functions entered", begun, entered, len(windows))
		})
	}
}

// middles returns the addresses inside the sites of a program, each with the site, and the sites. Those behind a branch
// of the site are left out; padding that short jumps go to belongs to them.
func middles(t *testing.T, file string) (map[uint64]uint64, map[uint64]bool) {
	t.Helper()
	out := run(t, command{argv: []string{fentry, "patch", "--plan", "--json", file}}).mustSucceed(t)
	var plan struct {
		Edits []struct{ Addr, Old, Reason string }
	}
	if err := json.Unmarshal([]byte(out.stdout), &plan); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	inside, sites := map[uint64]uint64{}, map[uint64]bool{}
	for _, e := range plan.Edits {
		at, err := strconv.ParseUint(e.Addr, 0, 64)
		if err == nil && e.Reason == "veneer" { // padding, which nothing may reach
			for k := range len(e.Old) / 2 {
				inside[at+uint64(k)] = at
			}
		}
		if err != nil || e.Reason != "trace" {
			continue
		}
		sites[at] = true
		code, err := f.Bytes(at, len(e.Old)/2)
		if err != nil {
			t.Fatal(err)
		}
		behind := false // a branch: the emulator begins anew
		for o := 0; o < len(code); {
			in, err := amd64.Decode(code[o:])
			if err != nil {
				t.Fatalf("%#x: %v", at, err)
			}
			for k := range in.Len {
				if o+k > 0 && !(behind && k == 0) {
					inside[at+uint64(o+k)] = at
				}
			}
			behind = in.PCRel == amd64.PCRelBranch || in.Op == amd64.CallInd
			o += in.Len
		}
	}
	return inside, sites
}

var (
	blockStart = regexp.MustCompile(`^0x([0-9a-f]+):`)
	codeStart  = regexp.MustCompile(`^start_code +0x([0-9a-f]+)`)
)

// translated yields the addresses, as in the file, of a program where an emulator has begun to translate.
func (in *invocation) translated(t *testing.T, file string) map[uint64]bool {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	r := in.run(t, file, "qemu-x86_64", "-d", "in_asm,nochain,page", "-D", log)
	if r.err != nil || strings.HasPrefix(r.status, "signal") {
		t.Fatalf("%s: %v\n%s", r.status, r.err, clip(r.stderr))
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	w, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	bias, known, starts := uint64(0), false, false
	out := map[uint64]bool{}
	sc := bufio.NewScanner(w)
	for sc.Scan() {
		if m := codeStart.FindStringSubmatch(sc.Text()); m != nil && !known {
			at, _ := strconv.ParseUint(m[1], 16, 64)
			bias, known = at-lowestCode(f), true
		} else if m := blockStart.FindStringSubmatch(sc.Text()); m != nil && starts {
			pc, _ := strconv.ParseUint(m[1], 16, 64)
			out[pc-bias] = true
		}
		starts = strings.HasPrefix(sc.Text(), "IN:")
	}
	if sc.Err() != nil || !known {
		t.Fatalf("%v; found where the program is: %v", sc.Err(), known)
	}
	return out
}

// lowestCode is the address of the first executable segment, as in the file.
func lowestCode(f *elfio.File) uint64 {
	low := ^uint64(0)
	for _, p := range f.Progs {
		if p.Type == 1 && p.Flags&1 != 0 {
			low = min(low, p.Vaddr)
		}
	}
	return low
}
