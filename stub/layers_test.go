package stub

import (
	"debug/elf"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/stub/internal/build"
)

// layers are the runtime's sources from the lowest to the highest, without their
// extensions. A file uses what the files before it define, and nothing of those
// behind: so the path of an event to memory can be read from one end to the other, and
// nothing is entered again while it is at work. The machine's own files stand where
// the common ones use them, and the assembly stands on top.
var layers = []string{
	"text",      // strings
	"words",     // what the fast paths look at
	"config",    // what the runtime was told
	"tls",       // arm64: a thread's one word
	"filter",    // system calls that the program has forbidden itself
	"say",       // messages
	"processor", // arm64: what it has
	"process",   // this process and others
	"owner",     // what files are, and whose
	"wipe",      // memory that is zero in a forked child
	"life",      // whether images' memory is there
	"image",     // what is traced, and switched on and off
	"source",    // where chunks come from, and the end of it
	"costly",    // functions that the recorder has switched off
	"poolmap",   // ... a recorder's shared memory, as this process maps it
	"pool",      // ... its chunks, taken and handed over
	"request",   // ... what its recorder is asked for
	"loader",    // ... what takes the place of a library
	"file",      // ... a file of the program's own
	"recorder",  // ... a recorder that is found in a directory
	"directory", // ... and the directory of that file
	"chunk",     // events and what they are written to
	"ahead",     // ... chunks that were taken beforehand
	"profile",   // tables of counts
	"blocks",    // the threads' control blocks
	"stack",     // stacks and their shadow
	"frame",     // open calls
	"thread",    // the running thread
	"session",   // finding where the trace goes
	"announce",  // what readers are told of the image
	"start",     // the start, and what must have been started
	"memory",    // what arguments point to
	"cfi",       // unwind information
	"walk",      // stacks that are walked
	"backtrace", // ... and recorded
	"swap.c",    // stacks of which pieces are swapped
	"slow",      // where the fast paths come to
	"capture",   // ... which functions' calls are captured with
	"condition", // ... and which of them are recorded
	"quick",     // ... without system calls, where they need none
	"act",       // ... those of functions at whose calls more is done
	"signal",    // ... signals that come to traced handlers
	"signal.S",  // ... where the kernel calls these
	"sigaction", // ... and how that comes about
	"syscall",   // ... those of system calls
	"place.c",   // ... events of functions without a thunk
	"goroutine", // ... events of Go's functions
	"settle",    // ... and which slots are theirs if a signal came meanwhile
	"sve",       // arm64: what fast paths go through
	"exec",      // what the program is about to execute
	"goexec",    // ... by Go's own code
	"exec.S",    // ... how it comes there
	"follow",    // ... and what makes it
	"gomodule",  // the module of a Go program's moved code
	"attach.S",  // how a thread comes to what a recorder has it do
	"change",    // ... and what it changes
	"home",      // the first image of a process, and the others
	"attach",    // what a recorder has a running process do
	"find",      // ... and what its unwinders find where
	"loaded.S",  // where the loader tells it of libraries
	"start.S", "loader.S", "func", "flat", "graph", "order", "flatorder", "opt", "profile.S", "count", "act.S", "swap.S", "detours", "syscall.S", "sysorder", "goroutine.S", "place.S",
}

// classic is the highest layer of the library: one tracer, in C and assembly that call
// each other.
const classic = "classic"

func TestLayers(t *testing.T) {
	forEach(t, func(t *testing.T, m *machine) {
		testtool.Need(t, m.target.CC)
		testLayers(t, m, layers, build.Runtime)
		below := layers[:slices.Index(layers, "memory")]
		testLayers(t, m, slices.Concat(below, []string{"slow", "sve", classic}), build.Classic,
			append([]string{build.ClassicDefine}, m.target.Classic...)...)
	})
}

func testLayers(t *testing.T, m *machine, layers []string, match func(string) bool, define ...string) {
	files, err := build.Sources("src", m.target, match)
	if err != nil {
		t.Fatal(err)
	}
	level := func(file string) int {
		base := filepath.Base(file)
		if strings.HasPrefix(base, classic) {
			return slices.Index(layers, classic)
		}
		if i := slices.Index(layers, base); i >= 0 {
			return i
		}
		return slices.Index(layers, strings.TrimSuffix(base, filepath.Ext(base)))
	}
	dir := t.TempDir()
	at := map[string]string{} // symbol to the file that defines it
	uses := map[string][]string{}
	for _, file := range files {
		if level(file) < 0 {
			t.Errorf("%s is in no layer", file)
			continue
		}
		out := filepath.Join(dir, filepath.Base(file)+".o")
		if err := build.Object(m.target, "src", out, []string{file}, define...); err != nil {
			t.Fatal(err)
		}
		o, err := elf.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		syms, err := o.Symbols()
		o.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range syms {
			switch {
			case s.Section == elf.SHN_UNDEF:
				uses[file] = append(uses[file], s.Name)
			case elf.ST_BIND(s.Info) != elf.STB_LOCAL:
				at[s.Name] = file
			}
		}
	}
	checked := 0
	for _, file := range slices.Sorted(maps.Keys(uses)) {
		for _, name := range uses[file] {
			in, ok := at[name]
			if !ok {
				continue // the program's or the linker's
			}
			checked++
			if level(in) > level(file) || level(in) == level(file) && layers[level(in)] != classic {
				t.Errorf("%s uses %s of %s, which is above it", file, name, in)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d uses of other files", checked)
	}
}
