package stub

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// ConfigSize is the size in bytes of the runtime's symbol fentry_config.
const ConfigSize = 4096

// Tracers, for Config.Mode.
const (
	ModeGraph    = 0 // function_graph: entries and exits
	ModeFunction = 1 // function: entries
	ModeProfile  = 2 // counts and times of functions, no events
)

// Flags, for Config.Flags.
const (
	FlagNoRecorder = 1 << iota // never look for a recorder among the ancestors
	FlagNoFile                 // never start a trace directory
	FlagQuiet                  // no messages on standard error
)

// Config is what the runtime is told by whoever puts it into a program: the
// contents of its symbol fentry_config.
type Config struct {
	Mode      uint32 // ModeGraph, ModeFunction or ModeProfile; must agree with the routines the thunks call
	ImageID   uint64 // identifies the image and its numbering of sites in traces
	Sites     uint32 // ids are 1 to this
	Flags     uint32 // FlagNoRecorder, FlagNoFile, FlagQuiet
	Depth     uint32 // calls deeper than this are not recorded, 0: no limit
	Policy    uint32 // what to do when there is no room for events: trace.Policy
	Threshold uint64 // ns: shorter calls are not recorded, 0: all are
	Roots     int64  // distance from fentry_config to a bitmap of the ids that are graph roots, 0: everything is recorded
	Address   uint64 // of fentry_config as linked
	Entry     uint64 // the image's own entry point as linked
	Buffer    uint64 // bytes of trace a thread keeps with the policy that overwrites, 0: the runtime's choice
	BuildID   []byte // the image's before it was patched, up to 127 bytes
	Session   string // path of a recorder's pool or trace file, up to 511 bytes
	Dir       string // trace directory to start, up to 511 bytes; empty: fentry.data
	Path      string // of the image, up to 1023 bytes
}

const configMagic = "FENTRYCF"

const configVersion = 1

// configFields is the layout of fentry_config. stub/src/layout.h has the same for
// C; a test compiles one against the other.
var configFields = []struct {
	name string // in layout.h, behind CONFIG_O_
	off  int
	size int // bytes
}{
	{"MAGIC", 0, 8},
	{"VERSION", 8, 4},
	{"MODE", 12, 4},
	{"IMAGE", 16, 8},
	{"SITES", 24, 4},
	{"FLAGS", 28, 4},
	{"DEPTH", 32, 4},
	{"POLICY", 36, 4},
	{"THRESHOLD", 40, 8},
	{"ROOTS", 48, 8},
	{"ADDRESS", 56, 8},
	{"ENTRY", 64, 8},
	{"BUFFER", 72, 8},
	{"IDLEN", 128, 1},
	{"ID", 129, 127},
	{"SESSION", 256, 512},
	{"DIR", 768, 512},
	{"PATH", 1280, 1024},
}

// MarshalBinary returns the ConfigSize bytes of fentry_config. It fails when a
// string does not fit or contains a NUL byte.
func (c *Config) MarshalBinary() ([]byte, error) {
	b := make([]byte, ConfigSize)
	le := binary.LittleEndian
	values := map[string]uint64{
		"VERSION": configVersion, "MODE": uint64(c.Mode), "IMAGE": c.ImageID, "SITES": uint64(c.Sites), "FLAGS": uint64(c.Flags),
		"DEPTH": uint64(c.Depth), "POLICY": uint64(c.Policy), "THRESHOLD": c.Threshold, "ROOTS": uint64(c.Roots),
		"ADDRESS": c.Address, "ENTRY": c.Entry, "BUFFER": c.Buffer, "IDLEN": uint64(len(c.BuildID)),
	}
	texts := map[string]string{
		"MAGIC": configMagic, "ID": string(c.BuildID), "SESSION": c.Session, "DIR": c.Dir, "PATH": c.Path,
	}
	for _, f := range configFields {
		if s, ok := texts[f.name]; ok {
			// Strings are NUL-terminated; magic and build-id are not strings.
			room := f.size
			if f.name != "MAGIC" && f.name != "ID" {
				room--
				if strings.IndexByte(s, 0) >= 0 {
					return nil, fmt.Errorf("runtime configuration: %s %q contains a NUL byte", strings.ToLower(f.name), s)
				}
			}
			if len(s) > room {
				return nil, fmt.Errorf("runtime configuration: %s of %d bytes, at most %d fit", strings.ToLower(f.name), len(s), room)
			}
			copy(b[f.off:], s)
			continue
		}
		switch v := values[f.name]; f.size {
		case 1:
			b[f.off] = byte(v)
		case 4:
			le.PutUint32(b[f.off:], uint32(v))
		case 8:
			le.PutUint64(b[f.off:], v)
		}
	}
	return b, nil
}
