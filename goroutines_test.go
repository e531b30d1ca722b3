package fentry_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Where goroutines are started, and why a fault in a mapped file (internal/mapped) cannot end the process there.
var mayStartGoroutines = map[string]string{
	"internal/parallel/parallel.go":    "hands faults over to who waits",
	"internal/buildstep/run.go":        "each file is worked on below a Guard (File)",
	"internal/buildstep/jobserver.go":  "waits for signals",
	"trace/each.go":                    "events are read, not mapped; names are copies",
	"session":                          "maps one header, looked at below a Guard; symbols are written and libraries patched below one (Run)",
	"cmd/fentry/view.go":               "waits; what net/http starts answers below a Guard (package view)",
	"cmd/fentry/mount.go":              "waits",
	"cmd/fentry/progress.go":           "writes to a terminal",
	"cmd/fentry/watch.go":              "reads a trace that it has made",
	"internal/fuse":                    "runs what package tracefs does",
	"tracefs":                          "maps no files; names of functions are copies (Live)",
	"streams.go":                       "copies the program's streams",
	"bench/view.go":                    "asks a server and maps no files",
	"bench/control.go":                 "reads what a program says",
	"internal/osthread":                "runs what stacks/thread.go, session and session/internal/tracee do; the last maps no files",
	"stacks/thread.go":                 "stops a thread and reads its memory, no file",
	"internal/testbrowser":             "is part of tests",
	"internal/testtool":                "is part of tests",
	"internal/cost/cost.go":            "is part of tests",
	"elfio/internal/elftest/system.go": "is part of tests",
}

// TestGoroutines: only what is known to withstand a mapped file that is truncated starts goroutines.
func TestGoroutines(t *testing.T) {
	used := map[string]bool{}
	check := func(path string) {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			starts := false
			switch n := n.(type) {
			case *ast.GoStmt:
				starts = true
			case *ast.CallExpr:
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok {
					starts = sel.Sel.Name == "Go" || sel.Sel.Name == "AfterFunc"
				}
			}
			if !starts {
				return true
			}
			for place := path; place != "."; place = filepath.Dir(place) {
				if mayStartGoroutines[place] != "" {
					used[place] = true
					return true
				}
			}
			t.Errorf("%v starts a goroutine; where it can touch a mapped file, use package parallel", fset.Position(n.Pos()))
			return true
		})
	}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			check(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for place := range mayStartGoroutines {
		if !used[place] {
			t.Errorf("%s starts no goroutines", place)
		}
	}
}
