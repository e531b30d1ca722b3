// Mkobject rebuilds the objects that package stub embeds. Run it in the package's
// directory: go generate ./stub.
package main

import (
	"fmt"
	"os"

	"github.com/fentry-dev/fentry/stub/internal/build"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mkobject:", err)
		os.Exit(1)
	}
}

func run() error {
	for _, t := range build.Targets {
		if err := writeCalls(t.Name); err != nil {
			return err
		}
		files, err := build.Sources("src", t, build.Runtime)
		if err != nil {
			return err
		}
		if err := build.Object(t, "src", t.Name+".o", files); err != nil {
			return err
		}
		if t.Shared {
			if err := build.Object(t, "src", t.Name+"-shared.o", files, build.SharedDefine); err != nil {
				return err
			}
		}
		v, err := build.Version(t)
		if err != nil {
			return err
		}
		if err := os.WriteFile(t.Name+".o.txt", []byte(v+"\n"), 0o644); err != nil {
			return err
		}
		if err := build.ClassicLibrary(t, "src", t.Name+"-classic.o"); err != nil {
			return err
		}
	}
	return nil
}
