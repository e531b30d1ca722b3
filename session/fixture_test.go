//go:build linux

package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/columns"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/fixture"
	"github.com/fentry-dev/fentry/trace"
)

func TestMain(m *testing.M) { fixture.Main(m) }

// recorderCmd is a session in a process of its own.
type recorderCmd struct {
	Path     string
	Dir      string
	Buffer   int64
	Policy   trace.Policy
	Compress Compression
	NoPtrace bool
	Profile  bool
	Memory   *patch.Memory
	Copy     string
	Emulator []string
	Library  map[string]string
	Result   string
	Hang     string

	prefix []string // command in front, such as a shell that changes something
	blind  bool     // the events are not read back
}

// command returns the command that runs argv in a session.
func (r *recorderCmd) command(t testing.TB, argv ...string) *exec.Cmd {
	t.Helper()
	bin := fixture.Build(t, "recorder", "go", "build", "-o", filepath.Join(fixture.Dir, "recorder"), "./testdata/recorder")
	tmp := t.TempDir()
	if r.Dir == "" {
		r.Dir = filepath.Join(tmp, "fentry.data")
	}
	r.Result = filepath.Join(tmp, "result")
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	opts := filepath.Join(tmp, "options")
	if err := os.WriteFile(opts, b, 0o666); err != nil {
		t.Fatal(err)
	}
	argv = append(append(r.prefix[:len(r.prefix):len(r.prefix)], bin, opts), argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.WaitDelay = 30 * time.Second // what is left behind can hold the pipes
	return cmd
}

// ran is how a session in a process of its own went.
type ran struct {
	code           int
	stdout, stderr string
	res            Result
	cpu            time.Duration // that the recorder took
	chunks         []fileChunk
}

func (r *recorderCmd) run(t testing.TB, argv ...string) ran {
	t.Helper()
	cmd := r.command(t, argv...)
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return r.finish(t, cmd, &out, &errb)
}

// finish waits for a session and reads what it left.
func (r *recorderCmd) finish(t testing.TB, cmd *exec.Cmd, out, errb *bytes.Buffer) ran {
	t.Helper()
	timer := time.AfterFunc(5*time.Minute, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	if !timer.Stop() {
		t.Fatalf("session does not end: %s", errb)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	x := ran{code: cmd.ProcessState.ExitCode(), stdout: out.String(), stderr: errb.String()}
	if b, err := os.ReadFile(r.Result); err == nil {
		var v struct {
			Result
			CPU        time.Duration
			WriteError any
		}
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		x.res, x.cpu = v.Result, v.CPU
	}
	if _, err := os.Stat(r.Dir); err == nil && !r.blind && !r.Profile {
		x.chunks = readEvents(t, r.Dir)
	}
	return x
}

// fileChunk is a chunk of an events file.
type fileChunk struct {
	kind     uint16
	pid, tid uint32
	number   uint32
	key      uint64
	words    []uint64
}

// readEvents reads a packed events file by the letter of the format.
func readEvents(t testing.TB, dir string) []fileChunk {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, trace.EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	if len(b) < format.HeaderSize || string(b[:8]) != format.FileMagic || le.Uint32(b[format.HLayout:]) != uint32(trace.LayoutPacked) || le.Uint32(b[format.HChunks:]) != 0 {
		t.Fatalf("header of %d bytes: %q", len(b), b[:min(128, len(b))])
	}
	var cs []fileChunk
	for off := int(le.Uint32(b[format.HHeaderSize:])); off < len(b); {
		c := b[off:]
		size := 0
		if len(c) >= format.ChunkHeader {
			size = int(le.Uint32(c[format.CSize:]))
		}
		if size < format.ChunkHeader || size > len(c) || size > format.ChunkSize || le.Uint32(c) != format.ChunkMagic {
			t.Fatalf("offset %#x of %#x: no chunk: %x", off, len(b), c[:min(len(c), 16)])
		}
		if le.Uint16(c[format.CKind:]) == format.KindCompressed {
			c = expanded(t, c[:size])
			off += size - len(c)
			size = len(c)
		}
		f := fileChunk{kind: le.Uint16(c[format.CKind:]), pid: le.Uint32(c[format.CPID:]), tid: le.Uint32(c[format.CTID:]), number: le.Uint32(c[format.CNumber:]), key: le.Uint64(c[format.CKey:])}
		for w := c[format.ChunkHeader:size]; len(w) > 0; w = w[8:] {
			if r, ok := format.ParseRecord(uint32(le.Uint64(w) >> 32)); ok {
				w = w[8*min(r.Words, len(w)/8-1):]
				continue
			}
			f.words = append(f.words, le.Uint64(w))
		}
		cs = append(cs, f)
		off += size
	}
	return cs
}

// expanded is the chunk of events that a compressed one stands for.
func expanded(t testing.TB, c []byte) []byte {
	t.Helper()
	d, err := columns.NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, le.Uint32(c[format.CPlain:]))
	copy(b, c[:format.ChunkHeader])
	le.PutUint16(b[format.CKind:], format.KindEvents)
	if err := d.Decode(b[format.ChunkHeader:], c[format.ChunkHeader:], le.Uint64(c[format.CCounter:])); err != nil {
		t.Fatal(err)
	}
	return b
}

// eventsIn counts the events of chunks.
func eventsIn(cs []fileChunk) int {
	n := 0
	for _, c := range cs {
		n += len(c.words)
	}
	return n
}
