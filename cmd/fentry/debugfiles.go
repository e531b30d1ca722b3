package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/symbol"
)

// debuginfodFind is elfutils' client of debuginfod. It knows the protocol, the environment variables, the limits of time
// and size, and the cache that all clients share, and only those who ask for it pay for it: an HTTP client in fentry
// made each start of it, fentry mcount's too, a quarter slower.
const debuginfodFind = "debuginfod-find"

// symbols says where names and lines of programs come from: the files that are installed and, if the user names
// debuginfod servers in DEBUGINFOD_URLS, those. What servers do not give is a note, not an error.
func (a *app) symbols() (o symbol.Options) {
	if a.verbose > 0 {
		o.Refused = func(path string, why error) { a.notef("fentry: names can be missing: %s is not taken: %v", path, why) }
	}
	if strings.TrimSpace(a.getenv("DEBUGINFOD_URLS")) == "" {
		return o
	}
	o.Fetch = func(buildID []byte) (string, error) {
		path, err := a.fetchDebug(buildID)
		if err != nil && (a.verbose > 0 || !errors.Is(err, errNoDebug)) {
			a.notef("fentry: names can be missing: %v", err)
		}
		return path, err
	}
	return o
}

// errNoDebug says that no server has a file, as is usual for programs of one's own.
var errNoDebug = errors.New("no debuginfod server has the debug information")

// fetchDebug returns the path of the debug file with a build-id, in debuginfod's cache. SIGINT ends the waiting for it,
// not fentry.
func (a *app) fetchDebug(buildID []byte) (string, error) {
	command, err := exec.LookPath(debuginfodFind)
	if err != nil {
		return "", errors.New("DEBUGINFOD_URLS is set, but " + debuginfodFind + " is missing (Debian: apt-get install debuginfod)")
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT)
	defer stop()
	var said bytes.Buffer
	find := exec.CommandContext(ctx, command, "debuginfo", hex.EncodeToString(buildID))
	find.Stderr = &said
	if !a.quiet && isTerminal(a.stderr) {
		find.Stderr = a.stderr
		find.Env = append(os.Environ(), "DEBUGINFOD_PROGRESS=1")
	}
	out, err := find.Output()
	switch {
	case err == nil:
		return strings.TrimSuffix(string(out), "\n"), nil
	case ctx.Err() != nil:
		return "", errors.New("the download of debug information was interrupted")
	case strings.Contains(said.String(), "No such file"): // what it makes of ENOENT
		return "", errNoDebug
	case said.Len() > 0:
		return "", errors.New(debuginfodFind + ": " + strings.TrimSpace(said.String()))
	}
	return "", errors.New(debuginfodFind + ": " + err.Error())
}
