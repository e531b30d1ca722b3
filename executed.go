//go:build linux

package fentry

// Programs that traced ones execute.
//
// A session asks for what is put into each of them when it begins, and the answer is the same plan as for the program
// itself, with the same options, made once for each file: make executes the same compiler a thousand times. A program in
// which nothing is chosen, as with -F 'cc1:*' in make, still has to say what it executes, so it gets the runtime alone.
// Programs that fentry has patched trace themselves, and those that cannot be traced are left alone: what these execute
// is not followed.

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/machine"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/symbol"
)

// An Executed is a program that a traced one has executed.
type Executed struct {
	Path     string
	Times    int    // how often it was executed by a traced program
	Traced   int    // functions of it that are traced
	Untraced string // why none is; "" if some are or it traces itself
}

// executed plans programs. Its methods are safe for concurrent use.
type executed struct {
	capturing *capturing // set before the first
	plans     *plans     // that are kept; nil: none are

	options patch.Options
	find    record.Options
	symbols symbol.Options
	prepare func(file string) // Options.Preparing
	pool    string            // set before the first program runs

	mu      sync.Mutex
	loaders map[string]*patch.LoaderCalls // of dynamic loaders, by path
	files   map[string]*executedFile      // by identity, and the path, which patterns are about
	order   []*executedFile
	left    map[string]*Executed // programs that could not be looked at, by path and reason

	logf func(format string, args ...any) // what is said of programs that run already; nil: nobody hears it

	moved  []*executedFile  // programs that were planned once more, to be closed
	loaded *loadedLibraries // libraries of processes that run; nil: none are recorded
}

// executedFile is the file of a program.
type executedFile struct {
	looked sync.Once // for a plan that is kept
	made   sync.Once
	about  Executed
	planned

	kept *keptPlan // in place of the program and the plan; nil: there are these
	exe  *os.File  // to plan it after all
	full sync.Once // that was done

	places sync.Once // of whole
	whole  *patch.Memory
}

// planned is a program that was looked at, and its plan.
type planned struct {
	program *Program
	plan    *patch.Plan   // nil: there is none
	memory  *patch.Memory // nil: it runs as it is
	noted
	untyped bool // types of functions are not known that are wanted
}

// newExecuted returns nil if programs are not to be followed.
func newExecuted(o *Options) *executed {
	if o.NoInherit || !session.CanFollow() || o.Plan.Tracer.ChunkSize() != 0 {
		return nil
	}
	e := &executed{
		options: o.Plan, symbols: o.Symbols, files: make(map[string]*executedFile), left: make(map[string]*Executed),
		loaders: make(map[string]*patch.LoaderCalls),
		find:    o.find(), prepare: o.Preparing,
	}
	e.symbols.Path = ""
	e.options.Target, e.options.Policy = patch.Process, uint32(o.Policy)
	return e
}

// mostLeft bounds how many programs are remembered that could not be looked at.
const mostLeft = 1000

// leave notes a program that is left alone.
func (e *executed) leave(path string, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := fmt.Sprintf("%q %v", path, why)
	x := e.left[key]
	if x == nil && len(e.left) < mostLeft {
		x = &Executed{Path: path, Untraced: why.Error()}
		e.left[key] = x
	}
	if x != nil {
		x.Times++
	}
}

// fileKey is the key of a program in executed.files.
func fileKey(path string, st *unix.Stat_t) string { return identity(st) + " " + path }

// file is what is known of a file that is executed by a path. at is its open file.
func (e *executed) file(path string, at *os.File) (*executedFile, *unix.Stat_t, error) {
	st := new(unix.Stat_t)
	if err := unix.Fstat(int(at.Fd()), st); err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	id := fileKey(path, st)
	x := e.files[id]
	if x == nil {
		x = &executedFile{about: Executed{Path: path}}
		e.files[id] = x
	}
	return x, st, nil
}

// ahead is told what is about to be executed. A plan that is kept of it is read while the kernel does that.
func (e *executed) ahead(path string, exe *os.File) {
	if x, st, err := e.file(path, exe); err == nil {
		x.looked.Do(func() { e.takeKept(x, exe, st) })
	}
}

// memory is what is put into a program that begins.
func (e *executed) memory(path string, exe *os.File) *patch.Memory {
	x, st, err := e.file(path, exe)
	if err != nil {
		e.leave(path, err)
		return nil
	}
	e.mu.Lock()
	if x.about.Times++; x.about.Times == 1 {
		e.order = append(e.order, x)
	}
	e.mu.Unlock()
	x.looked.Do(func() { e.takeKept(x, exe, st) })
	x.made.Do(func() {
		if x.kept != nil {
			return
		}
		made, err := e.make(path, exe, 0)
		if made.plan != nil && made.memory != nil {
			key := ""
			_ = mapped.Guard(func() error { key = e.plans.put(&made, st, err); return nil })
			if key != "" {
				e.plans.code(key, path, exe, st, made.memory)
			}
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if x.planned = made; made.plan != nil {
			x.about.Traced = made.plan.Traced()
			e.sayLeft(path, made.plan)
		}
		if err != nil {
			x.about.Untraced = err.Error()
		}
	})
	return x.memory
}

// takeKept takes the plan that is kept of a program, if there is one.
func (e *executed) takeKept(x *executedFile, exe *os.File, st *unix.Stat_t) {
	kept := e.plans.get(x.about.Path, st)
	if kept == nil || kept.memory.SetSession(e.pool) != nil {
		return
	}
	fd, err := unix.FcntlInt(exe.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return
	}
	if !e.plans.use(kept, x.about.Path, exe, st) {
		unix.Close(fd)
		return
	}
	e.loaderCalls(kept.memory, kept.about.Loader)
	e.mu.Lock()
	defer e.mu.Unlock()
	x.kept, x.memory, x.exe = kept, kept.memory, os.NewFile(uintptr(fd), x.about.Path)
	x.about.Traced, x.about.Untraced = kept.about.Traced, kept.about.Untraced
}

// again plans a program of which a plan was kept, as somebody wants more of it.
func (e *executed) again(x *executedFile) (*Program, *patch.Plan) {
	x.full.Do(func() {
		if x.kept == nil {
			return
		}
		made, _ := e.make(x.about.Path, x.exe, 0)
		if made.plan == nil || made.plan.ImageID != x.kept.about.Image {
			if made.program != nil {
				made.program.Close()
			}
			return // the file was changed
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		x.program, x.plan = made.program, made.plan
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	return x.program, x.plan
}

// whole is what was put into a program that was executed, with its places; nil: it is not known any more.
func (e *executed) whole(exe *os.File) *patch.Memory {
	var st unix.Stat_t
	if unix.Fstat(int(exe.Fd()), &st) != nil {
		return nil
	}
	var x *executedFile
	e.mu.Lock()
	for key, f := range e.files {
		if f.memory != nil && strings.HasPrefix(key, fileKey("", &st)) {
			x = f
		}
	}
	e.mu.Unlock()
	if x == nil {
		return nil
	}
	x.places.Do(func() {
		if x.memory.HasPlaces() {
			x.whole = x.memory
			return
		}
		_ = mapped.Guard(func() error {
			_, plan := e.again(x)
			if plan == nil {
				return nil
			}
			again, err := plan.Memory()
			if err == nil {
				again.Code, again.CodeRX = x.kept.memory.Code, x.kept.memory.CodeRX
				x.whole = again
			}
			return err
		})
	})
	return x.whole
}

// make finds what can be traced in a program, and plans that. There can be a plan even if there is an error: nothing in it is
// traced then. at is as in patch.Options.
func (e *executed) make(path string, exe *os.File, at uint64) (planned, error) {
	m, err := mapped.MapFD(int(exe.Fd()), path)
	if err != nil {
		return planned{}, err
	}
	p := &Program{Path: path, symbols: e.symbols, mapped: m, keeps: true, prepare: e.prepare}
	if err = mapped.Guard(func() error { return p.find(e.find) }); err != nil {
		return planned{program: p}, err
	}
	return e.place(p, at)
}

// place plans a program of which is known what can be traced in it, as make does.
func (e *executed) place(p *Program, at uint64) (made planned, err error) {
	made.program = p
	err = mapped.Guard(func() (err error) {
		if p.Patched {
			return nil
		}
		if p.File == nil || !p.File.Is64() {
			return errors.New(p.Untraced)
		}
		why := e.plan(&made, at)
		if made.plan == nil {
			return why
		}
		if made.memory, err = made.plan.Memory(); err != nil {
			return err
		}
		e.loaderCalls(made.memory, p.loader())
		return why
	})
	return made, err
}

// plan plans a program of which the sites are known. There is a plan, and an error, if nothing in it is traced.
func (e *executed) plan(made *planned, at uint64) (err error) {
	p, o := made.program, e.options
	o.At = at
	o.Session, o.Path = e.pool, p.Path
	if p.Syscalls != nil {
		o.Syscalls = &p.Syscalls
	}
	o.Execs = p.tellingExecs()
	var typed bool
	made.plan, made.noted, typed, err = planNoted(e.capturing, p, &o, func() (*patch.Plan, error) {
		return patch.New(p.File, p.Sites, o)
	})
	if made.untyped = !typed; !errors.Is(err, patch.ErrNoSites) {
		return err
	}
	if p.Untraced != "" {
		err = errors.New(p.Untraced)
	}
	if bare, errBare := patch.New(p.File, p.Sites, bareOptions(o)); errBare == nil {
		made.plan = bare
	}
	return err
}

// loaderCalls has the system calls of a dynamic loader, which most programs share, recorded with those of a program.
func (e *executed) loaderCalls(m *patch.Memory, path string) {
	if !e.find.Syscalls || m.SyscallEnter == 0 || path == "" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	calls, known := e.loaders[path]
	if !known {
		host, _ := machine.Host()
		calls, _ = loaderCalls(path, e.options.Only.Of(host.ELF)) // it is said of the program itself
		e.loaders[path] = calls
	}
	m.LoaderCalls = calls
}

// bareOptions are those of a plan that traces nothing. Its runtime is for the same limits as that of other plans: it serves their
// libraries.
func bareOptions(o patch.Options) patch.Options {
	nothing, _ := record.NewFilter(nil, []string{"*"})
	none := func(f *record.Filter) *record.Filter {
		if f != nil {
			f = nothing
		}
		return f
	}
	o.Select, o.Roots, o.Hide, o.Actions = nothing, none(o.Roots), none(o.Hide), o.Actions.For(nothing)
	o.Syscalls, o.Keep, o.Bare = nil, true, true
	return o
}

// results are the programs that were executed, by path.
func (e *executed) results() []Executed {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []Executed
	for _, x := range e.order {
		all = append(all, x.about)
	}
	for _, x := range e.left {
		all = append(all, *x)
	}
	slices.SortFunc(all, func(a, b Executed) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Untraced, b.Untraced))
	})
	return all
}

// close gives back what the run has needed.
func (e *executed) close() {
	if e == nil {
		return
	}
	closed := map[*Program]bool{nil: true} // plans share them
	for _, x := range slices.Concat(slices.Collect(maps.Values(e.files)), e.moved, e.loaded.all()) {
		if !closed[x.program] {
			closed[x.program] = true
			x.program.Close()
		}
		x.exe.Close()
		if x.memory != nil {
			x.memory.Code.Close()
		}
	}
}
