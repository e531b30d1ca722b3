package e2e

import (
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestInstalledLibraryCalls traces installed programs with their calls into libraries.
func TestInstalledLibraryCalls(t *testing.T) {
	needLibraryCalls(t)
	for _, in := range installed() {
		t.Run(in.argv[0], func(t *testing.T) {
			t.Parallel()
			file := needProgram(t, in.argv[0])
			in.name = file
			want := in.run(t, file)
			data := filepath.Join(t.TempDir(), "data")
			sameBehaviour(t, want, in.run(t, file, fentry, "record", "-q", "--libcalls", "-F", "*@plt", "-o", data))
			calls := 0
			for fn := range decodeTrace(t, data).entries {
				if !strings.HasSuffix(fn.name, "@plt") {
					t.Errorf("%s is traced", fn.name)
				}
				calls++
			}
			if calls < 5 {
				t.Errorf("calls of %d functions", calls)
			}
			patched := filepath.Join(t.TempDir(), filepath.Base(file))
			patchFile(t, file, patched, []string{"--force", "--libcalls", "--data", filepath.Join(t.TempDir(), "data")})
			sameBehaviour(t, want, in.run(t, patched))
		})
	}
}

func needLibraryCalls(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("programs without sites are traced on x86-64")
	}
	needFentry(t)
}

// countStubs is a gdb script that counts how often addresses of a program are executed.
const countStubs = `
python
import gdb, re
gdb.execute("set pagination off")
gdb.execute("set startup-with-shell off")
gdb.execute("unset environment LINES")
gdb.execute("unset environment COLUMNS")
gdb.execute("starti", to_string=True)
entry = int(re.search(r"AT_ENTRY .*(0x[0-9a-f]+)", gdb.execute("info auxv", to_string=True)).group(1), 16)
counts = {}
class Stub(gdb.Breakpoint):
    def __init__(self, addr):
        super().__init__("*%#x" % (entry - ENTRY + addr), internal=True)
        self.addr, counts[addr] = addr, 0
    def stop(self):
        counts[self.addr] += 1
        return False
for a in STUBS: Stub(a)
gdb.execute("continue", to_string=True)
for a in STUBS: print("COUNT", a, counts[a])
end
`

// TestLibraryCallCounts compares how often functions of libraries are called, as traces say, with gdb's breakpoints at the
// stubs.
func TestLibraryCallCounts(t *testing.T) {
	needLibraryCalls(t)
	testtool.Need(t, "gdb")
	for _, in := range []invocation{
		{argv: []string{"bash", "f"}, files: map[string]string{"f": "for i in 1 2 3; do [[ a$i =~ (.) ]]; printf '%s\\n' ${i}x; done; a=(5 3 1); echo ${#a[@]}\n"}},
		{argv: []string{"git", "diff", "--no-index", "--stat", "f", "g"}, files: map[string]string{"f": "a\nb\nc\n", "g": "a\nc\nd\n"}},
		{argv: []string{"sqlite3", ":memory:"}, stdin: "create table t(a, b); insert into t values (1,'x'),(2,'y'); select a, upper(b) from t order by b desc;"},
	} {
		t.Run(in.argv[0], func(t *testing.T) {
			t.Parallel()
			file := needProgram(t, in.argv[0])
			in.name = file
			data := filepath.Join(t.TempDir(), "data")
			sameBehaviour(t, in.run(t, file), in.run(t, file, fentry, "record", "-q", "--overhead", "no", "-F", "*@plt", "-o", data))
			traced := map[string]int64{}
			for fn, n := range decodeTrace(t, data).entries {
				traced[fn.name] += n
			}
			names, addrs := stubAddresses(t, file)
			f, err := elf.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
			script := strings.NewReplacer("- ENTRY", fmt.Sprintf("- %#x", f.Entry),
				"in STUBS", "in ["+strings.Join(addrs, ",")+"]").Replace(countStubs)
			path := filepath.Join(t.TempDir(), "count.gdb")
			if err := os.WriteFile(path, []byte(script), 0o644); err != nil {
				t.Fatal(err)
			}
			out := in.run(t, file, "gdb", "-nx", "-batch", "-x", path, "--args")
			compared := 0
			for line := range strings.Lines(out.stdout) {
				col := strings.Fields(line)
				if len(col) != 3 || col[0] != "COUNT" {
					continue
				}
				n, _ := strconv.ParseInt(col[2], 10, 64)
				if got := traced[names[col[1]]]; got != n {
					t.Errorf("%s: %d calls, gdb has counted %d", names[col[1]], got, n)
				}
				if n > 0 {
					compared++
				}
			}
			if compared < 10 {
				t.Errorf("only %d functions compared\n%s%s", compared, clip(out.stdout), clip(out.stderr))
			}
		})
	}
}

// stubAddresses are the stubs of a program that can be traced: their names by address, and the addresses.
func stubAddresses(t *testing.T, file string) (map[string]string, []string) {
	t.Helper()
	names := map[string]string{}
	var addrs []string
	out := run(t, command{argv: []string{fentry, "list", "--json", "-F", "*@plt", file}}).mustSucceed(t)
	for line := range strings.Lines(out.stdout) {
		var l struct{ Name, Address string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		v, err := strconv.ParseUint(l.Address, 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		a := strconv.FormatUint(v, 10)
		names[a] = l.Name
		addrs = append(addrs, a)
	}
	slices.Sort(addrs)
	return names, addrs
}
