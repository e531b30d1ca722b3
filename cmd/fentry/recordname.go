package main

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// tracePlace returns where the trace of a program goes: what -o says, with %n for the program's name, %p for the recorder's
// process and %% for %. Recorders that something starts at the same time, as go test does, need a place each, which
// may be in a directory that is not there yet.
func tracePlace(dir, program string) (string, error) {
	at := strings.NewReplacer("%n", programName(program), "%p", strconv.Itoa(os.Getpid()), "%%", "%").Replace(dir)
	if at == dir {
		return dir, nil
	}
	return at, os.MkdirAll(filepath.Dir(at), 0o777)
}

// programName is the name of a program's file. Test binaries of Go packages, many of which can have one name, have that of
// their package: encoding_json.test.
func programName(path string) string {
	if strings.HasSuffix(path, ".test") {
		if info, err := buildinfo.ReadFile(path); err == nil && info.Path != "" {
			pkg := strings.TrimSuffix(info.Path, ".test") // that of a package main has no such end
			return strings.ReplaceAll(pkg, "/", "_") + ".test"
		}
	}
	return filepath.Base(path)
}
