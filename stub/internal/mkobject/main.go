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
	files, err := build.Sources("src", build.AMD64, build.Runtime)
	if err != nil {
		return err
	}
	if err := build.Object(build.AMD64, "src", "amd64.o", files); err != nil {
		return err
	}
	if err := build.Library(build.AMD64, "src", "amd64-classic.o", build.Classic, build.ClassicDefine); err != nil {
		return err
	}
	v, err := build.Version(build.AMD64)
	if err != nil {
		return err
	}
	return os.WriteFile("amd64.o.txt", []byte(v+"\n"), 0o644)
}
