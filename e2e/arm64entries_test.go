package e2e

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	a64 "github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/debs"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestEntriesARM64 holds the proof for arm64 against what is executed. Nothing can go into the middle of one instruction;
// but what goes to it, by a branch or a jump table, has to find a return address in x30. So untraced programs run in an
// emulator that shows the registers whenever it begins at a site that some branch of the program goes to: x30 has to lead
// behind a call. How often it does is also how many calls are counted.
func TestEntriesARM64(t *testing.T) {
	arm64.need(t)
	needFentry(t)
	root := debs.Root(t, arm64Packages...)
	for _, p := range arm64Installed() {
		name := filepath.Base(p.path)
		switch name {
		case "python3.11", "cc1":
			if !testtool.Wide() {
				continue // which take long in an emulator
			}
		case "perl", "bash", "git", "sed", "mawk":
		default:
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := filepath.EvalSymlinks(filepath.Join(root, p.path))
			if err != nil {
				t.Fatal(err)
			}
			f, sites := jumpedTo(t, file)
			rand.New(rand.NewPCG(3, 5)).Shuffle(len(sites), func(i, j int) { sites[i], sites[j] = sites[j], sites[i] })
			const most = 300 // the emulator compares each block with all of them
			arrived := p.arrivals(t, f, file, root, sites[:min(len(sites), most)])
			seen := map[uint64]uint64{}
			for _, a := range arrived {
				seen[a[0]]++
				b, err := f.Bytes(a[1]-a64.InstLen, a64.InstLen)
				if err != nil {
					continue // a library's
				}
				if op := a64.DecodeWord(binary.LittleEndian.Uint32(b)).Op; op != a64.Call && op != a64.CallInd {
					t.Errorf("%#x: reached with %#x in x30, which is behind %v", a[0], a[1], op)
				}
			}
			if len(seen) == 0 {
				t.Errorf("none of %d sites was reached", len(sites))
			}
			if !forks[name] {
				calls := p.calls(t, file, root)
				for at, n := range seen {
					if calls[at] != n {
						t.Errorf("%#x: %d calls, entered %d times", at, calls[at], n)
					}
				}
			}
			t.Logf("%d of %d sites, %d times", len(seen), len(sites), len(arrived))
		})
	}
}

// forks are programs whose counts are those of several processes, or are other ones each time.
var forks = map[string]bool{"bash": true, "perl": true, "python3.11": true}

// calls records a program and returns how often each function was called, by address.
func (p *foreign) calls(t *testing.T, file, root string) map[uint64]uint64 {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	p.run(t, file, fentry, "record", "-q", "-T", "count", "--emulator", "qemu-aarch64 -L "+root, "-o", data)
	r := run(t, command{argv: []string{fentry, "report", "--json", "-i", data}}).mustSucceed(t)
	calls := map[uint64]uint64{}
	for line := range strings.Lines(r.stdout) {
		var row struct {
			Address string
			Calls   uint64
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		at, err := strconv.ParseUint(row.Address, 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		calls[at] = row.Calls
	}
	return calls
}

// jumpedTo are the sites of a program that a branch of its goes to, other than a call.
func jumpedTo(t *testing.T, file string) (*elfio.File, []uint64) {
	t.Helper()
	out := run(t, command{argv: []string{fentry, "patch", "--plan", "--json", file}}).mustSucceed(t)
	var plan struct {
		Edits []struct{ Addr, Reason string }
	}
	if err := json.Unmarshal([]byte(out.stdout), &plan); err != nil {
		t.Fatal(err)
	}
	at := map[uint64]bool{}
	for _, e := range plan.Edits {
		if addr, err := strconv.ParseUint(e.Addr, 0, 64); err == nil && e.Reason == "trace" {
			at[addr] = true
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	s := f.Sections[f.SectionIndex(".text")]
	code, err := f.Bytes(s.Addr, int(s.Size))
	if err != nil {
		t.Fatal(err)
	}
	var sites []uint64
	for o := 0; o+a64.InstLen <= len(code); o += a64.InstLen {
		in := a64.DecodeWord(binary.LittleEndian.Uint32(code[o:]))
		if to := in.Target(s.Addr + uint64(o)); in.PCRel == a64.PCRelBranch && in.Op != a64.Call && at[to] {
			sites = append(sites, to)
			delete(at, to)
		}
	}
	return f, sites
}

var (
	atBlock   = regexp.MustCompile(`PC=([0-9a-f]{16})`)
	linkValue = regexp.MustCompile(`X30=([0-9a-f]{16})`)
)

// arrivals runs a program and returns, for each time that it comes to one of the sites by a branch, the site and what is
// in x30, as addresses of the file.
func (p *foreign) arrivals(t *testing.T, f *elfio.File, file, root string, sites []uint64) (out [][2]uint64) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	start := p.run(t, file, "qemu-aarch64", "-L", root, "-d", "page", "-D", log)
	b, err := os.ReadFile(log)
	if err != nil || start.err != nil {
		t.Fatal(err, start.err)
	}
	m := regexp.MustCompile(`(?m)^start_code +0x([0-9a-f]+)`).FindSubmatch(b)
	if m == nil {
		t.Fatal("the emulator does not say where the program is")
	}
	bias, err := strconv.ParseUint(string(m[1]), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	bias -= lowestCode(f)
	var ranges []string
	for _, at := range sites {
		ranges = append(ranges, fmt.Sprintf("%#x+4", at+bias))
	}
	r := p.run(t, file, "qemu-aarch64", "-L", root, "-d", "cpu,nochain", "-dfilter", strings.Join(ranges, ","), "-D", log)
	if r.err != nil || strings.HasPrefix(r.status, "signal") {
		t.Fatalf("%s: %v\n%s", r.status, r.err, clip(r.stderr))
	}
	w, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	pc := uint64(0)
	sc := bufio.NewScanner(w)
	for sc.Scan() {
		if m := atBlock.FindStringSubmatch(sc.Text()); m != nil {
			pc, _ = strconv.ParseUint(m[1], 16, 64)
		}
		if m := linkValue.FindStringSubmatch(sc.Text()); m != nil && pc != 0 {
			x30, _ := strconv.ParseUint(m[1], 16, 64)
			out = append(out, [2]uint64{pc - bias, x30 - bias})
			pc = 0
		}
	}
	if sc.Err() != nil {
		t.Fatal(sc.Err())
	}
	return out
}
