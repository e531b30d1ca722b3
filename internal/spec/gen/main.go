// Command gen writes the files that are made from the table in internal/spec.
//
// It is run by "go generate ./internal/format", in that directory.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fentry-dev/fentry/internal/spec"
)

func main() {
	if err := run("../.."); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	files, err := spec.Files()
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o666); err != nil {
			return err
		}
	}
	return nil
}
