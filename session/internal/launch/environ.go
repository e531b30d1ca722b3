//go:build linux

package launch

import (
	"bytes"
	"os"
)

// Environ is the environment this process was started with. os.Environ
// leaves out repeated names, which the kernel does not; they are kept as long as
// the program has not changed its environment.
func Environ() []string {
	now := os.Environ()
	b, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		return now
	}
	var env []string
	for s := range bytes.SplitSeq(bytes.TrimSuffix(b, []byte{0}), []byte{0}) {
		env = append(env, string(s))
	}
	if len(b) == 0 {
		env = nil
	}
	have := make(map[string]bool, len(env))
	for _, s := range env {
		have[s] = true
	}
	for _, s := range now {
		if !have[s] {
			return now
		}
		delete(have, s)
	}
	// What is left must be repetitions of names that are there.
	names := make(map[string]bool, len(now))
	for _, s := range now {
		name, _, _ := bytes.Cut([]byte(s), []byte("="))
		names[string(name)] = true
	}
	for s := range have {
		name, _, _ := bytes.Cut([]byte(s), []byte("="))
		if s != "" && !names[string(name)] {
			return now // unset since
		}
	}
	return env
}
