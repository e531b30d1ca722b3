// Command gen writes the files that are made from the format's table:
// trace/zformat.go, stub/src/format.h and docs/format.md.
//
// It is run by "go generate ./trace", in directory trace.
package main

import (
	"fmt"
	"go/format"
	"os"
	"path/filepath"

	"github.com/fentry-dev/fentry/trace/internal/spec"
)

func main() {
	if err := run(".."); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	src, err := format.Source([]byte(spec.GoConsts()))
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"trace/zformat.go":  string(src),
		"stub/src/format.h": spec.CHeader(),
		"docs/format.md":    spec.Markdown(),
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			return err
		}
	}
	return nil
}
