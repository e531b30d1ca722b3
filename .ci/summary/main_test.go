package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	const pass = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/x"}
{"Action":"pass","Package":"p","Test":"TestA/x"}
{"Action":"pass","Package":"p","Test":"TestA"}
`
	const skip = `{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: gdb is not installed\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
`
	allow := filepath.Join(t.TempDir(), "allow")
	if err := os.WriteFile(allow, []byte("# comment\np\\.TestB\tno debugger for this machine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "none")
	if err := os.WriteFile(none, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, in, allow, want, err string }{
		{"pass", pass, none, "1 passed, 0 failed, 0 skipped\n", ""},
		{"slow", pass + `{"Action":"run","Package":"p","Test":"TestS"}` + "\n" + `{"Action":"pass","Package":"p","Test":"TestS","Elapsed":12.34}`, "",
			"slow  p.TestS  12.3s\n2 passed, 0 failed, 0 skipped\n", ""},
		{"skip", pass + skip, "", "skip  p.TestB: b_test.go:7: gdb is not installed\n1 passed, 0 failed, 1 skipped\n", ""},
		{"skip allowed", pass + skip, allow, "1 passed, 0 failed, 1 skipped\n", ""},
		{"skip refused", pass + skip, none, "SKIP, but it has to run here: p.TestB: b_test.go:7: gdb is not installed\n1 passed, 0 failed, 1 skipped\n", "1 tests were skipped that have to run here"},
		{"fail", pass + `{"Action":"fail","Package":"p","Test":"TestC"}` + "\n" + `{"Action":"fail","Package":"p"}`, "", "FAILED  p.TestC\n1 passed, 1 failed, 0 skipped\n", "tests failed"},
		{"subtest fails", `{"Action":"run","Package":"p","Test":"T"}` + "\n" + `{"Action":"fail","Package":"p","Test":"T/x"}` + "\n" + `{"Action":"fail","Package":"p","Test":"T"}`,
			"", "FAILED  p.T/x\n0 passed, 1 failed, 0 skipped\n", "tests failed"},
		{"does not build", pass + `{"ImportPath":"q","Action":"build-output","Output":"syntax error\n"}` + "\n" + `{"ImportPath":"q","Action":"build-fail"}` + "\n" +
			`{"Action":"fail","Package":"q"}`, "", "1 passed, 1 failed, 0 skipped\n", "tests failed"},
		{"died", pass + `{"Action":"run","Package":"p","Test":"TestD"}`, "", "--- NO END: p.TestD\nFAILED  p.TestD\n1 passed, 1 failed, 0 skipped\n", "tests failed"},
		{"nothing", "", "", "", "no test ran"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			err := run(strings.NewReader(tc.in), &out, tc.allow)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tc.err || !strings.HasSuffix(out.String(), tc.want) {
				t.Errorf("error %q, want %q; output\n%swant at its end\n%s", got, tc.err, out.String(), tc.want)
			}
		})
	}
}
