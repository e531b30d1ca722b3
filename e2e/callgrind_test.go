package e2e

import (
	"bufio"
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/e2e/corpus"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// callgrindCounts reads how often each function of a program was called from a callgrind.out file: the sum of calls= over all its callers.
// Functions of the same name in libraries are not the program's.
func callgrindCounts(t testing.TB, path, program string) map[string]int64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// Compressed names: "(12) name" first, "(12)" later; functions and objects have numbers of their own.
	functions, objects := map[string]string{}, map[string]string{}
	resolve := func(names map[string]string, s string) string {
		id, name, _ := strings.Cut(s, " ")
		if name != "" {
			names[id] = name
		}
		return names[id]
	}
	counts := map[string]int64{}
	var object, callee, calleeObject string
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line := sc.Text()
		switch {
		case strings.HasPrefix(line, "fn="):
			resolve(functions, line[3:])
		case strings.HasPrefix(line, "cfn="):
			callee = resolve(functions, line[4:])
		case strings.HasPrefix(line, "ob="):
			object = resolve(objects, line[3:])
		case strings.HasPrefix(line, "cob="):
			calleeObject = resolve(objects, line[4:])
		case strings.HasPrefix(line, "calls="):
			n, err := strconv.ParseInt(strings.Fields(line[6:])[0], 10, 64)
			if err != nil {
				t.Fatalf("%s: %q: %v", path, line, err)
			}
			if calleeObject == program || calleeObject == "" && object == program {
				counts[recursionSuffix.ReplaceAllString(callee, "")] += n
			}
			calleeObject = "" // holds for one call
		}
	}
	if sc.Err() != nil {
		t.Fatal(sc.Err())
	}
	return counts
}

var recursionSuffix = regexp.MustCompile(`'\d+$`)

// TestCallgrind compares the trace of real programs, function by function, with what callgrind counts in the same untraced program.
func TestCallgrind(t *testing.T) {
	testtool.Need(t, "valgrind")
	small := filepath.Join(t.TempDir(), "small.lua")
	script := `local function fib(n) if n < 2 then return n end return fib(n-1) + fib(n-2) end
local t = {}
for i = 1, 300 do t[i] = tostring(fib(i % 12)) .. ("x"):rep(i % 9) end
table.sort(t)
local n = 0
for i = 1, 200 do if not pcall(error, "e" .. i) then n = n + 1 end end
local co = coroutine.wrap(function() for i = 1, 50 do coroutine.yield(i) end end)
for i = 1, 50 do n = n + co() end
print(#table.concat(t, ","), n, (("abc"):rep(20):gsub("b%a", "%0%0")))
`
	if err := os.WriteFile(small, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		program corpus.Name
		kind    string // default patchable
		args    []string
		stdin   string
	}{
		{program: corpus.Lua, args: []string{small}},
		{program: corpus.Lua, kind: "plain", args: []string{small}},
		{program: corpus.SQLite, args: []string{":memory:"}, stdin: corpus.SQLScript(1500)},
		{program: corpus.Zstd, args: []string{"-q", "-7", "--single-thread", "-c"}, stdin: string(sampleData(50_000))},
	} {
		kind := cmp.Or(tc.kind, "patchable")
		t.Run(string(tc.program)+"-"+kind, func(t *testing.T) {
			t.Parallel()
			b := buildProgram(t, tc.program, kindNamed(t, kind))
			out := filepath.Join(t.TempDir(), "callgrind.out")
			under := run(t, command{dir: t.TempDir(), stdin: tc.stdin, argv: append([]string{"valgrind", "--tool=callgrind", "--compress-strings=yes",
				"--callgrind-out-file=" + out, "-q", b.Program}, tc.args...)})
			data := filepath.Join(t.TempDir(), "data")
			traced := runJob(t, job{kind: kindNamed(t, kind), program: b.Program, args: tc.args, stdin: tc.stdin}, byRecord, data)
			if under.stdout != traced.stdout || under.status != traced.status {
				t.Fatalf("under callgrind the program does something else: %s, traced %s\n%s\n%s", under.status, traced.status, clip(under.stderr), clip(traced.stderr))
			}
			want := callgrindCounts(t, out, b.Program)
			tr := decodeTrace(t, data)
			if tr.lost != 0 {
				t.Errorf("%d events lost", tr.lost)
			}
			if total := sameCounts(t, tr, want); total < 5_000 {
				t.Errorf("only %d calls", total)
			}
		})
	}
}

// sameCounts compares how often each function is called in a trace with what callgrind has counted. It returns how many calls
// there are.
func sameCounts(t *testing.T, tr *decoded, want map[string]int64) (total int64) {
	t.Helper()
	got := map[string]int64{}
	for f, n := range tr.entries {
		got[f.name] += n
	}
	wrong := 0
	for name, n := range got {
		total += n
		if want[name] != n && name != "main" { // callgrind shows main below an address
			if wrong++; wrong <= 15 {
				t.Errorf("calls of %s: trace %d, callgrind %d", name, n, want[name])
			}
		}
	}
	for name, n := range want {
		if _, traceable := tr.traceable[name]; traceable && got[name] == 0 && n != 0 {
			if wrong++; wrong <= 15 {
				t.Errorf("calls of %s: trace 0, callgrind %d", name, n)
			}
		}
	}
	t.Logf("%d functions, %d calls, %d wrong", len(got), total, wrong)
	return total
}
