//go:build linux

package fentry

// Shared libraries of a traced program.
//
// While the dynamic loader of a program does its work, session asks for each file that it opens what is to take its
// place. A library that a pattern names is patched in whole, by the same plan as a program's file, and the patched copy
// is kept in the cache of this user: it depends on nothing but the library, the options, and the fentry that has made
// it, so the next run finds it there. Where there is no cache, copies are in memory.
//
// A copy is asked for by file, not by name: the loader can come to a file by several names, and finds out that it has
// loaded it by comparing files.

import (
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/cache"
	"github.com/fentry-dev/fentry/internal/machine"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/internal/places"
	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/names"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
)

// A Library is a shared library that a pattern of [Options].Libraries names and that the program has loaded.
type Library struct {
	Path     string // of its file
	Traced   int    // functions of it that are traced
	Untraced string // why none is; "" if it is traced
	Kept     bool   // the patched copy was made by an earlier run
}

// libraries patches the libraries of one run. Its methods are safe for concurrent use.
type libraries struct {
	patterns []libraryPattern
	plan     patch.Options
	find     record.Options
	symbols  symbol.Options
	machine  elf.Machine
	loader   string // name of the dynamic loader's file, which is no library: emulators open it as the loader opens these

	capturing *capturing // set before the first

	logf     func(format string, args ...any)
	prepares func(file string)
	places   *places.Probe // for copies that are not in the cache
	syscalls bool          // system calls are recorded in libraries that no pattern names, too
	swaps    bool          // libraries that swap pieces of their stack are to say so, also those that no pattern names

	mu     sync.Mutex
	opened sync.Once             // cache and own are set
	cache  *cache.Cache          // nil: none can be used
	own    string                // what identifies this fentry
	files  map[string][]*library // by identity
	order  []*library            // as they were loaded
	kept   bool                  // something new is in the cache
	unkept int                   // copies for which the cache had no room

	keptNames bool // so is a symbol file
}

// library is a file that the loader has opened.
type library struct {
	Library
	about   about
	info    os.FileInfo // of the library itself
	copied  *os.File    // nil: it is left alone
	unasked bool        // it stays as it is
	silent  bool        // no pattern names it: it is patched for its system calls only, or for swaps
	swaps   bool        // it may swap pieces of its stack
	key     string      // of the copy in the cache; "": it is not there
	sum     string      // of what is in the file, if its identity does not say that yet

	again *libraryImage // its plan, made once more for what is asked of it while it runs; nil: it is not there
}

// about is what the cache keeps beside a patched copy.
type about struct {
	Image      uint64 // image id
	Traced     int
	Untraced   string // why there is no copy
	Unselected bool   // that is because no pattern matches a function
	Empty      bool   // that is because no function in it can be traced
	noted
}

// cacheKind is the kind of the cache's entries that are patched libraries.
const cacheKind = "images"

// newLibraries returns nil if no libraries are to be traced. follows: those of programs that the program executes are, too.
func newLibraries(p *Program, o *Options, follows bool) (*libraries, error) {
	if len(o.Libraries) == 0 && !(o.Syscalls && (follows || p.loads())) && !(o.swaps() && (follows || p.loadsSwaps())) {
		return nil, nil
	}
	l := &libraries{plan: o.Plan, symbols: o.Symbols, logf: o.Logf, files: make(map[string][]*library)}
	l.places = places.Of(os.TempDir())
	if host, ok := machine.Host(); ok {
		l.machine = host.ELF
	}
	if p != nil && p.File != nil {
		l.machine = p.File.Header.Machine
		if err := mapped.Guard(func() error { l.loader = filepath.Base(p.interpreter()); return nil }); err != nil {
			return nil, mapped.Named(p.Path, err)
		}
	}
	for _, pattern := range o.Libraries {
		parsed, err := parseLibraryPattern(pattern)
		if err != nil {
			return nil, err
		}
		l.patterns = append(l.patterns, parsed)
	}
	if l.logf == nil {
		l.logf = func(string, ...any) {}
	}
	if l.prepares = o.Preparing; l.prepares == nil {
		l.prepares = func(string) {}
	}
	l.plan.Target, l.plan.Session, l.plan.Policy = patch.File, "", uint32(o.Policy)
	l.plan.Unloads = follows // then the program has the runtime, whatever is chosen of it
	l.find, l.syscalls, l.swaps = o.find(), o.Syscalls, o.swaps()
	return l, nil
}

// swaps reports whether return addresses are replaced, at once or when functions are added, so that functions that swap pieces of
// their stack matter.
func (o *Options) swaps() bool {
	return o.Plan.Tracer != patch.Function && o.Plan.Tracer != patch.Count
}

// onlySwaps reports whether these are all that libraries are looked at for.
func (o *Options) onlySwaps() bool { return len(o.Libraries) == 0 && !o.Syscalls }

// loadsSwaps is record.LoadsSwaps; of a script, whose interpreter is not known, it is true.
func (p *Program) loadsSwaps() (yes bool) {
	if p.swaps != nil {
		return *p.swaps
	}
	_ = mapped.Guard(func() error {
		yes = p.File == nil || record.LoadsSwaps(p.File)
		return nil
	})
	return yes
}

// maySwap reports whether a library that no pattern names is to be looked at for functions that swap pieces of their stack. All
// libraries are many, and large, so that is asked only of what can be an extension of Python's by its name.
func (l *libraries) maySwap(path string, f *os.File) bool {
	return l.swaps && !strings.HasPrefix(filepath.Base(path), "lib") && imageIs(f, record.MaySwap)
}

// unnamed is what is looked for in such a library, beside its system calls.
func unnamed(find record.Options, swaps bool) record.Options {
	find.LibraryCalls, find.Named = false, nil
	if find.Plain = record.PlainNone; swaps {
		find.Plain = record.PlainAuto
	}
	return find
}

// writeTo has libraries know where the trace is, for processes in which one of them starts before the program, and tracers
// of which programs keep the tables. So their copies are of use in this run only.
func (l *libraries) writeTo(pool string) {
	if l != nil {
		l.plan.Session = pool
		l.opened.Do(func() {})
	}
}

// openCache is called once, when there is a library to be patched.
func (l *libraries) openCache() {
	var self unix.Stat_t
	if err := unix.Stat("/proc/self/exe", &self); err != nil {
		return
	}
	l.own = identity(&self)
	var err error
	if l.cache, err = cache.Open(); err != nil {
		l.logf("patched libraries are not kept: %v", err)
	}
}

// close gives back what the run has needed.
func (l *libraries) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unkept > 1 && l.cache != nil {
		l.logf("patched copies of %d more libraries are not kept", l.unkept-1)
	}
	if l.kept {
		if err := l.cache.Trim(cacheKind, cache.DefaultLimit); err != nil {
			l.logf("%v", err)
		}
	}
	if l.keptNames {
		_ = l.cache.Trim(namesKind, namesLimit)
	}
	l.cache.Close()
	for _, lib := range l.order {
		lib.copied.Close()
		if lib.again != nil {
			lib.again.close()
		}
	}
}

// results are the libraries that were loaded, and the patterns that none of them has matched.
func (l *libraries) results() (libs []Library, unmatched []string) {
	if l == nil {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lib := range l.order {
		if !lib.silent {
			libs = append(libs, lib.Library)
		}
	}
	for i := range l.patterns {
		if !l.patterns[i].matched {
			unmatched = append(unmatched, l.patterns[i].text)
		}
	}
	return libs, unmatched
}

// open says what takes the place of a file that the loader has opened by the name given; nil: it stays.
func (l *libraries) open(given string, f *os.File) *os.File {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || !isLibrary(f, l.machine) || filepath.Base(given) == l.loader {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lib, known, sum := l.seen(f, &st)
	if !known {
		lib = l.first(given, f, &st, sum)
		if lib == nil {
			lib = &library{sum: sum, unasked: true}
		} else {
			l.order = append(l.order, lib)
		}
		id := identity(&st)
		l.files[id] = append(l.files[id], lib)
	}
	return lib.copied
}

// seen finds a library that was opened before, with what is in it now: another one can have been written over it, or have its
// number. The kernel's clock does not tell two such files apart that are written at the same moment; then what is in them does.
func (l *libraries) seen(f *os.File, st *unix.Stat_t) (lib *library, known bool, sum string) {
	all := l.files[identity(st)]
	if fresh(st) || slices.ContainsFunc(all, func(lib *library) bool { return lib.sum != "" }) {
		sum = sumOf(f)
	}
	for _, lib := range all {
		if lib.sum == sum || lib.sum == "" && !fresh(st) {
			return lib, true, sum
		}
	}
	return nil, false, sum
}

// fresh tells whether a file was changed so lately that one more change would leave its times as they are: these are of the clock's
// ticks, of 10 ms at most.
func fresh(st *unix.Stat_t) bool { return changedWithin(st, time.Second) }

func changedWithin(st *unix.Stat_t, d time.Duration) bool {
	return time.Since(time.Unix(st.Ctim.Unix())) < d
}

// sumOf is a sum of what is in a file.
func sumOf(f *os.File) string {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, 1<<62)); err != nil {
		return err.Error()
	}
	return string(h.Sum(nil))
}

// first decides about a library that is opened for the first time; nil: it was not asked for.
func (l *libraries) first(given string, f *os.File, st *unix.Stat_t, sum string) *library {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		path = given
	}
	named, asked := l.named(given, path, f)
	swaps := !named && l.maySwap(path, f)
	if !named && !l.syscalls && !swaps {
		return nil
	}
	lib := &library{Library: Library{Path: path}, silent: !named, swaps: swaps, sum: sum}
	if lib.info, err = f.Stat(); err != nil {
		return nil
	}
	if err := l.patched(lib, f, st); err != nil {
		lib.Untraced = err.Error()
	}
	lib.Traced = lib.about.Traced
	if lib.Untraced == "" {
		lib.Untraced = lib.about.Untraced
	}
	switch {
	case lib.Untraced == "":
	case lib.swaps && !lib.about.Unselected:
		l.logf(unsafeSwaps, path, lib.Untraced)
	case lib.about.Empty && !asked: // of those that match * glibc has some in which there is nothing but versions
	case !lib.about.Unselected && !lib.silent:
		l.logf("%s: not traced: %s", path, lib.Untraced)
	}
	return lib
}

// unsafeSwaps is said of a library that cannot be prevented from doing harm.
const unsafeSwaps = "%s: it may swap pieces of a stack, and cannot be changed: %s; programs with coroutines that use it need -T function"

// named tells whether a pattern matches one of a library's names, and notes which ones do. asked: one is such a name, and does not
// match others as well.
func (l *libraries) named(given, path string, f *os.File) (named, asked bool) {
	soname := sync.OnceValue(func() string { return soname(f) })
	for i := range l.patterns {
		if p := &l.patterns[i]; p.match(given) || p.match(path) || p.match(soname()) {
			p.matched, named = true, true
			asked = asked || !strings.ContainsAny(p.text, `*?[\`)
		}
	}
	return named, asked
}

// identity says which version of a file it is.
func identity(st *unix.Stat_t) string {
	written, changed := st.Mtim, st.Ctim
	return fmt.Sprintf("%x:%x:%d:%d.%d:%d.%d", st.Dev, st.Ino, st.Size, written.Sec, written.Nsec, changed.Sec, changed.Nsec)
}

// patched fills in the patched copy of a library.
func (l *libraries) patched(lib *library, f *os.File, st *unix.Stat_t) error {
	if uid := int(st.Uid); uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("it belongs to user %d", uid)
	}
	l.opened.Do(l.openCache)
	plan, find, capturing := l.options(lib)
	key := l.key(&plan, find, capturing, identity(st)+lib.sum)
	var err error
	lib.copied, err = l.cache.Get(cacheKind, key, &lib.about)
	if err != nil && lib.sum == "" && l.cache != nil && changedWithin(st, time.Hour) { // it can have been new when it was kept
		also := l.key(&plan, find, capturing, identity(st)+sumOf(f))
		if lib.copied, err = l.cache.Get(cacheKind, also, &lib.about); err == nil {
			key = also
		}
	}
	if err == nil {
		lib.Kept, lib.key = true, key
		lib.about.tell(&l.plan, capturing)
		return nil
	}
	l.prepares(lib.Path)
	defer l.prepares("")
	return mapped.Guard(func() error {
		im, err := planLibrary(f, lib.Path, l, &plan, find, capturing)
		if err != nil {
			return err
		}
		defer im.close()
		lib.about = im.about
		return l.keep(lib, key, im)
	})
}

// options are those by which a library is planned.
func (l *libraries) options(lib *library) (plan patch.Options, find record.Options, c *capturing) {
	plan, find, c = l.plan, l.find, l.capturing
	plan.Path, plan.Copy = lib.Path, true
	if lib.silent {
		plan.NoFunctions, find, c = true, unnamed(find, lib.swaps), nil
	}
	return plan, find, c
}

// planOf plans a library once more, by the id of its patched image: whether that was made now or by an earlier run, nobody has kept
// the plan. nil: it is none of these.
func (l *libraries) planOf(id trace.ImageID) (*Program, *patch.Plan, error) {
	if l == nil {
		return nil, nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lib := l.byImage(id)
	if lib == nil {
		return nil, nil, nil
	}
	if lib.again == nil {
		im, err := l.planAgain(lib)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", lib.Path, err)
		}
		lib.again = im
	}
	return lib.again.program, lib.again.plan, nil
}

func (l *libraries) planAgain(lib *library) (*libraryImage, error) {
	f, err := safefile.Open(lib.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !os.SameFile(fi, lib.info) || !fi.ModTime().Equal(lib.info.ModTime()) {
		return nil, errors.Join(errors.New("changed since it was loaded"), err)
	}
	plan, find, capturing := l.options(lib)
	im, err := planLibrary(f, lib.Path, l, &plan, find, capturing)
	if err != nil {
		return nil, err
	}
	if im.plan == nil || im.plan.ImageID != lib.about.Image {
		im.close()
		return nil, errors.New("is not planned as it was when it was loaded")
	}
	return im, nil
}

// byImage finds a library by the id of its patched image; nil: it is none of these. The caller has the lock.
func (l *libraries) byImage(id trace.ImageID) *library {
	for _, lib := range l.order {
		if lib.copied != nil && trace.ImageID(lib.about.Image) == id {
			return lib
		}
	}
	return nil
}

// key is what a library's copy depends on: the file, all options, and the fentry that makes it.
func (l *libraries) key(plan *patch.Options, find record.Options, capturing *capturing, id string) string {
	o := *plan
	o.Select, o.First, o.Roots, o.Hide, o.Without, o.Actions = nil, nil, nil, nil, nil, nil
	find.Named = nil
	return cache.Key("library", l.own, id, fmt.Sprintf("%+v %+v %q", o, find, l.symbols.DebugDirs), capturing.Key(),
		plan.Select.Key(), plan.First.Key(), plan.Roots.Key(), plan.Hide.Key(), plan.Without.Key(), plan.Actions.Key())
}

// keep puts a copy into the cache, or if there is none into memory, or among temporary files.
func (l *libraries) keep(lib *library, key string, im *libraryImage) error {
	name := filepath.Base(lib.Path)
	var write func(*os.File) error
	if im.plan != nil {
		write = im.write
	}
	if write == nil || !im.untyped && l.cache.Executes() {
		f, err := l.cache.Put(cacheKind, key, name, &lib.about, write)
		if err == nil || write == nil {
			lib.copied, lib.key, l.kept = f, key, true
			return nil
		}
		if l.unkept++; l.cache != nil && l.unkept == 1 { // others are counted
			l.logf("%s: the patched copy is not kept: %v", lib.Path, err)
		}
	}
	f, _, err := l.places.File(name, places.Memory, places.Temporary)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	lib.copied = f
	return nil
}

// names returns the functions of a library by the id of its patched image; nil: it is none of these.
func (l *libraries) names(id trace.ImageID) (*names.Table, error) {
	lib := l.image(id)
	if lib == nil {
		return nil, nil
	}
	t, _, err := l.namesOf(lib)
	return t, err
}

// image is the library with the id of a patched image; nil: it is none of these.
func (l *libraries) image(id trace.ImageID) *library {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byImage(id)
}

// namesOf returns the functions of a library, and what their names depend on; nil: that is not known.
func (l *libraries) namesOf(lib *library) (*names.Table, *aboutNames, error) {
	im := names.Image{ID: lib.about.Image, Paths: []string{fmt.Sprintf("/proc/self/fd/%d", lib.copied.Fd())}}
	t, about, err := l.originalNames(lib, im)
	if err != nil { // it has been replaced since
		if t, err = names.Find(im); err != nil {
			return nil, nil, err
		}
	}
	t.Path = lib.Path
	return t, about, nil
}

// originalNames names the functions of a library by its file, which leads to its debug file as the copy does not.
func (l *libraries) originalNames(lib *library, im names.Image) (*names.Table, *aboutNames, error) {
	m, err := mapped.Open(lib.Path)
	if err != nil {
		return nil, nil, err
	}
	defer m.Close()
	if !os.SameFile(m.Info, lib.info) || !m.Info.ModTime().Equal(lib.info.ModTime()) {
		return nil, nil, fmt.Errorf("%s: changed since it was loaded", lib.Path)
	}
	original, err := elfio.Parse(m.Data)
	if err != nil {
		return nil, nil, err
	}
	o := l.symbols
	o.Path = lib.Path
	tab, err := symbol.NewWith(original, o)
	if err != nil {
		return nil, nil, err
	}
	defer tab.Close()
	c, err := mapped.MapFD(int(lib.copied.Fd()), lib.Path)
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	f, err := elfio.Parse(c.Data)
	if err != nil {
		return nil, nil, err
	}
	t, err := names.FromNamed(f, im, tab)
	if err != nil {
		return nil, nil, err
	}
	about := aboutTable(tab)
	return t, &about, m.Changed()
}
