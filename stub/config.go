package stub

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/fentry-dev/fentry/internal/format"
)

// ConfigSize is the size in bytes of the runtime's symbol fentry_config.
const ConfigSize = format.ConfigSize

// Tracers, for Config.Mode.
const (
	ModeGraph    = format.ModeGraph    // function_graph: entries and exits
	ModeFunction = format.ModeFunction // function: entries
	ModeProfile  = format.ModeProfile  // counts and times of functions, no events
)

// Flags, for Config.Flags.
const (
	FlagNoRecorder = format.FlagNoRecorder // never look for a recorder among the ancestors
	FlagNoFile     = format.FlagNoFile     // never start a trace directory
	FlagQuiet      = format.FlagQuiet      // no messages on standard error
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
	BuildID   []byte // the image's before it was patched, up to 127 bytes
	Session   string // path of a recorder's pool or trace file, up to 511 bytes
	Dir       string // trace directory to start, up to 511 bytes; empty: fentry.data
	Path      string // of the image, up to 1023 bytes
}

// MarshalBinary returns the ConfigSize bytes of fentry_config. It fails when a
// string does not fit or contains a NUL byte.
func (c *Config) MarshalBinary() ([]byte, error) {
	b := make([]byte, ConfigSize)
	copy(b[format.ConfigOMagic:], format.ConfigMagic)
	le := binary.LittleEndian
	le.PutUint32(b[format.ConfigOVersion:], format.ConfigVersion)
	le.PutUint32(b[format.ConfigOMode:], c.Mode)
	le.PutUint64(b[format.ConfigOImage:], c.ImageID)
	le.PutUint32(b[format.ConfigOSites:], c.Sites)
	le.PutUint32(b[format.ConfigOFlags:], c.Flags)
	le.PutUint32(b[format.ConfigODepth:], c.Depth)
	le.PutUint32(b[format.ConfigOPolicy:], c.Policy)
	le.PutUint64(b[format.ConfigOThreshold:], c.Threshold)
	le.PutUint64(b[format.ConfigORoots:], uint64(c.Roots))
	le.PutUint64(b[format.ConfigOAddress:], c.Address)
	if len(c.BuildID) > format.ConfigNID {
		return nil, fmt.Errorf("runtime configuration: build-id of %d bytes, at most %d fit", len(c.BuildID), format.ConfigNID)
	}
	b[format.ConfigOIdlen] = byte(len(c.BuildID))
	copy(b[format.ConfigOID:], c.BuildID)
	for _, t := range []struct {
		name, val string
		off, size int
	}{
		{"session", c.Session, format.ConfigOSession, format.ConfigNSession},
		{"dir", c.Dir, format.ConfigODir, format.ConfigNDir},
		{"path", c.Path, format.ConfigOPath, format.ConfigNPath},
	} {
		if strings.IndexByte(t.val, 0) >= 0 {
			return nil, fmt.Errorf("runtime configuration: %s %q contains a NUL byte", t.name, t.val)
		}
		if len(t.val) >= t.size { // it is NUL-terminated
			return nil, fmt.Errorf("runtime configuration: %s of %d bytes, at most %d fit", t.name, len(t.val), t.size-1)
		}
		copy(b[t.off:], t.val)
	}
	return b, nil
}
