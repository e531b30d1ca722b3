// Package build makes the runtime's objects from stub/src with the C compiler.
package build

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A Target is a machine the runtime is built for.
type Target struct {
	Name    string // of its directory in src and of the object
	CC      string // compiler; its prefix is the other tools'
	Args    []string
	Classic []string // more of them, for the classic tracer
	Shared  bool     // shared objects need a runtime of their own: compiled with SharedDefine
}

// SharedDefine is given to the compiler for the runtime of shared objects, where that is another one.
const SharedDefine = "-DFENTRY_SHARED"

// AMD64 is x86-64.
var AMD64 = Target{Name: "amd64", CC: "gcc", Args: []string{
	"-m64", "-mgeneral-regs-only", "-fcf-protection=none",
}}

// ARM64 is AArch64, little-endian, any of its processors: no instruction that the
// first ones did not have, and none that lands or signs, because nothing comes to
// compiled code but by bl and ret. x18 is the platform's, and x28 the goroutine in Go's
// programs, which their signal handlers look at. The classic tracer lands,
// for programs may take its functions' addresses, and linking with it does not take
// their protection away.
var ARM64 = Target{Name: "arm64", CC: "aarch64-linux-gnu-gcc", Args: []string{
	"-march=armv8-a", "-mgeneral-regs-only", "-mbranch-protection=none", "-mno-outline-atomics", "-ffixed-x18", "-ffixed-x28",
}, Classic: []string{"-mbranch-protection=bti"}, Shared: true}

// Targets are all machines.
var Targets = []Target{AMD64, ARM64}

// Flags are the compiler's for every target: freestanding, position independent
// without a global offset table (everything is hidden), no tables of addresses,
// no calls of a libc, unwind rows for every instruction.
var Flags = []string{
	"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wframe-larger-than=768",
	"-ffreestanding", "-fno-builtin", "-fPIE", "-fvisibility=hidden", "-fno-stack-protector",
	"-fno-jump-tables", "-fno-tree-loop-distribute-patterns", "-fasynchronous-unwind-tables",
	"-fno-ident", "-fno-exceptions", "-fno-common", "-fmerge-constants", "-nostdinc",
}

// rare are the files that are made small, as they are in every program: what they do is done once, or in front of a
// system call. The others are made fast.
var rare = []string{
	"announce.c", "attach.c", "blocks.c", "cfi.c", "change.c", "chunk.c", "costly.c", "directory.c", "exec.c", "file.c",
	"follow.c", "goexec.c", "gomodule.c", "home.c", "image.c", "life.c", "loader.c", "owner.c", "pool.c", "poolmap.c", "process.c",
	"profile.c", "recorder.c", "request.c",
	"say.c", "session.c", "sigaction.c", "signal.c", "source.c", "stack.c", "start.c", "syscall.c", "text.c", "thread.c",
	"wipe.c",
}

// copies are those of them in which gcc for arm64 would call memcpy if they were made small.
var copies = []string{"recorder.c", "cfi.c"}

// isSmall reports whether a file is made small for a target.
func isSmall(t Target, file string) bool {
	return slices.Contains(rare, file) && (t.Name == AMD64.Name || !slices.Contains(copies, file))
}

// Sources returns the C and assembly files for a target in src: those in the target's
// directory, and then the common ones, each sorted.
func Sources(src string, t Target, match func(name string) bool) ([]string, error) {
	var files []string
	for _, dir := range []string{filepath.Join(src, t.Name), src} {
		var these []string
		for _, pat := range []string{"*.c", "*.S"} {
			m, err := filepath.Glob(filepath.Join(dir, pat))
			if err != nil {
				return nil, err
			}
			these = append(these, m...)
		}
		slices.Sort(these)
		files = append(files, these...)
	}
	files = slices.DeleteFunc(files, func(f string) bool { return !match(filepath.Base(f)) })
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no sources", src)
	}
	return files, nil
}

// Runtime is what goes into patched images: everything but the classic tracer.
func Runtime(name string) bool { return !strings.HasPrefix(name, "classic") }

// Classic is the runtime with the classic tracer, which programs are linked with:
// nothing of what thunks call.
func Classic(name string) bool {
	switch name {
	case "act.c", "act.S", "backtrace.c", "capture.c", "condition.c", "cfi.c", "memory.c", "quick.c", "walk.c", "signal.c", "signal.S",
		"sigaction.c", "home.c", "settle.c", "exec.c", "exec.S", "follow.c", "loader.c", "loader.S", "start.S",
		"graph.S", "order.S", "func.S", "flat.S", "flatorder.S", "opt.S", "profile.S", "count.S", "syscall.c", "syscall.S", "sysorder.S",
		"goexec.c", "goroutine.c", "goroutine.S", "gomodule.c", "swap.c", "swap.S", "place.c", "place.S":
		return false
	case "attach.c", "attach.S", "find.c", "loaded.S", "change.c", "detours.S":
		return false
	}
	return true
}

// ClassicDefine is given to the compiler for Classic.
const ClassicDefine = "-DFENTRY_CLASSIC"

// Library makes an object for linking with programs, of the files that match: names
// that are not for them are made local.
func Library(t Target, src, out string, match func(name string) bool, define ...string) error {
	files, err := Sources(src, t, match)
	if err != nil {
		return err
	}
	if err := link(t, src, out, files, define...); err != nil {
		return err
	}
	if err := strip(t, out, ".comment", ".note.GNU-stack"); err != nil {
		return err
	}
	return Run(t.tool("objcopy"), "--localize-hidden", "--strip-unneeded",
		// linkers would make the stack executable without it
		"--add-section", ".note.GNU-stack=/dev/null", "--set-section-flags", ".note.GNU-stack=contents,readonly", out)
}

// ClassicLibrary makes the object of the classic tracer.
func ClassicLibrary(t Target, src, out string) error {
	return Library(t, src, out, Classic, append([]string{ClassicDefine}, t.Classic...)...)
}

// Object compiles the files and links them into one relocatable object at out.
func Object(t Target, src, out string, files []string, define ...string) error {
	if err := link(t, src, out, files, define...); err != nil {
		return err
	}
	return strip(t, out, ".comment", ".note.GNU-stack", ".note.gnu.property")
}

func (t Target) tool(name string) string { return strings.TrimSuffix(t.CC, "gcc") + name }

func link(t Target, src, out string, files []string, define ...string) error {
	tmp, err := os.MkdirTemp("", "fentry-stub-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	args := []string{"-r", "-o", out}
	for i, f := range files {
		o := filepath.Join(tmp, fmt.Sprintf("%02d-%s.o", i, filepath.Base(f)))
		include := []string{"-I" + src, "-I" + filepath.Join(src, t.Name)}
		cc := slices.Concat(t.Args, Flags, include, define, []string{"-c", "-o", o, f})
		if isSmall(t, filepath.Base(f)) {
			cc = append(cc, "-Os")
		}
		if err := Run(t.CC, cc...); err != nil {
			return err
		}
		args = append(args, o)
	}
	return Run(t.tool("ld"), args...)
}

// strip removes sections of an object, and symbols that are not needed.
func strip(t Target, out string, sections ...string) error {
	var args []string
	for _, s := range sections {
		args = append(args, "--remove-section="+s)
	}
	return Run(t.tool("objcopy"), append(args, "--strip-unneeded", out)...)
}

// Run runs a tool and returns its output as the error when it fails.
func Run(name string, args ...string) error {
	var b bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &b, &b
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, b.Bytes())
	}
	return nil
}

// Version is the first line of the compiler's answer to --version.
func Version(t Target) (string, error) {
	b, err := exec.Command(t.CC, "--version").Output()
	line, _, _ := strings.Cut(string(b), "\n")
	return line, err
}
