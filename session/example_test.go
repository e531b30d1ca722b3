//go:build linux

package session_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fentry-dev/fentry/session"
)

// A session without a plan: the program runs untraced, but programs patched
// offline that it starts would record to the same trace.
func ExampleRun() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path, err := session.LookPath("sh")
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := session.Run(context.Background(), session.Options{
		Path: path,
		Args: []string{"sh", "-c", "exit 3"},
		Dir:  filepath.Join(dir, "fentry.data"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("exit status", res.Status.ExitStatus(), "events", res.Events, "lost", res.Lost)
	// Output: exit status 3 events 0 lost 0
}
