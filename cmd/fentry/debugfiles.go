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
	"sync"

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
	var mu sync.Mutex
	var failed error // since then nobody is asked
	o.Fetch = func(buildID []byte) (string, error) {
		mu.Lock()
		defer mu.Unlock() // programs wait for their names: one after another costs no more than a server that does not answer
		if failed != nil {
			return "", failed
		}
		path, err := a.fetchDebug(buildID)
		switch {
		case err == nil:
		case !errors.Is(err, errNoDebug):
			failed = err
			a.notef("fentry: names can be missing: %v; the servers in DEBUGINFOD_URLS are asked no more", err)
		case a.verbose > 0:
			a.notef("fentry: names can be missing: %v (%x)", err, buildID)
		}
		return path, err
	}
	return o
}

// mostTime is for how many seconds a file is downloaded at most, if the user has not said (DEBUGINFOD_MAXTIME): a server that goes on for
// ever would fill the disk.
const mostTime = "300"

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
	find.Stderr, find.Env = &said, os.Environ()
	if a.getenv("DEBUGINFOD_MAXTIME") == "" {
		find.Env = append(find.Env, "DEBUGINFOD_MAXTIME="+mostTime)
	}
	if !a.quiet && isTerminal(a.stderr) {
		find.Stderr = a.stderr
		find.Env = append(find.Env, "DEBUGINFOD_PROGRESS=1")
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
