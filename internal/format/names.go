package format

import "strings"

// IsTraceFile reports whether name is that of a file in a trace directory. Nothing else is ever removed.
func IsTraceFile(name string) bool {
	if id, ok := strings.CutSuffix(name, FileSym); ok {
		return len(id) == 16 && strings.Trim(id, "0123456789abcdef") == ""
	}
	return name != "" && !strings.Contains(name, "\x00") && strings.Contains("\x00"+Files, "\x00"+name+"\x00")
}

// Tracers returns the names of tracers by their numbers: ModeGraph, ModeFunction and so on.
func Tracers() []string { return strings.Split(strings.TrimSuffix(ModeNames, "\x00"), "\x00") }
