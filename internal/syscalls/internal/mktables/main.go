// Mktables writes zcalls.txt and zconstants.txt into the current directory.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fentry-dev/fentry/internal/syscalls/internal/tables"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mktables:", err)
		os.Exit(1)
	}
}

func run() error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	calls, constants, err := tables.Make(filepath.Join(strings.TrimSpace(string(out)), "unix"))
	if err != nil {
		return err
	}
	if err := os.WriteFile("zcalls.txt", []byte(calls), 0o666); err != nil {
		return err
	}
	return os.WriteFile("zconstants.txt", []byte(constants), 0o666)
}
