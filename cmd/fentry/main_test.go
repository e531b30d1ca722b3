package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes "fentry" a command of the scripts: the test binary itself.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fentry": main})
}

// TestScripts runs testdata/script/*.txtar. A script states one behaviour;
// conditions such as [gcc] skip it where a tool is missing, and the tests
// below say which tool of which package that is.
func TestScripts(t *testing.T) {
	demo, err := filepath.Abs("demo")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("DEMO", demo)
			env.Setenv("LC_ALL", "C.UTF-8")
			for _, name := range []string{"NO_COLOR", "CLICOLOR_FORCE", "FENTRY_OPTS", "FENTRY_DATA", "FENTRY_PAGER", "PAGER"} {
				env.Vars = append(env.Vars, name+"=")
			}
			return nil
		},
		Condition: func(cond string) (bool, error) {
			_, err := exec.LookPath(cond)
			return err == nil, nil
		},
		UpdateScripts: os.Getenv("FENTRY_UPDATE") != "",
	})
}
