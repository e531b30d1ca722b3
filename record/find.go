package record

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/bigslice"
	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/record/code"
	"github.com/fentry-dev/fentry/record/golang"
	"github.com/fentry-dev/fentry/record/plain"
	"github.com/fentry-dev/fentry/symbol"
)

// Options change what Find looks for. The zero value is right for most programs.
type Options struct {
	// Fentry and Mcount name additional profiling functions, called before and after the prologue (gcc
	// -mfentry-name=NAME).
	Fentry, Mcount []string
	// Symbols are the functions of the image, if the caller has them already, for instance with the names of a
	// separate debug file. nil: they are read from the image.
	Symbols *symbol.Table
	// Plain says which functions that no compiler has prepared are to be traced.
	Plain Plain
	// Named adds with PlainAuto those of them that a pattern names, whatever else can be traced.
	Named *Filter
	// LibraryCalls adds calls of other images' functions, which are named function@plt. So does a pattern of Named that
	// ends with @plt.
	LibraryCalls bool
	// Syscalls is whether the image's system calls are asked for as well, see [Syscalls]; Find has only functions.
	Syscalls bool
	// Execs is whether it is asked where Go programs execute others, see [Syscalls], too.
	Execs bool
	// JumpsAway has it known of functions that compilers have prepared whether they jump to other images, too ([Site].JumpsAway).
	JumpsAway bool
	// GoRuntime includes the functions of Go's runtime itself.
	GoRuntime bool
	// XRayExits includes the exit sleds of xray_instr_map, as sites with the reason xray-exit.
	XRayExits bool
}

// Find returns the sites of a linked image and the functions that have none, sorted by address of the function, then
// of the site. Errors name the malformed part of the file.
func Find(f *elfio.File, o Options) ([]Site, error) {
	im, err := load(f, o.Symbols)
	if err != nil {
		return nil, fmt.Errorf("finding sites: %w", err)
	}
	names := im.m.profilers()
	if len(o.Fentry)+len(o.Mcount) > 0 {
		names = maps.Clone(names)
		for _, n := range o.Fentry {
			names[n] = profFentry
		}
		for _, n := range o.Mcount {
			names[n] = profMcount
		}
	}
	fd := &finder{im: im, m: im.m, o: o, prof: findProfiling(im, names), gaps: gaps{im: im}}
	switch g, err := fd.goImage(); {
	case err != nil:
		return nil, err
	case g != nil:
		return fd.goSites(g)
	}
	if err := fd.ordinary(); err != nil {
		return nil, fmt.Errorf("finding sites: %w", err)
	}
	if err := fd.jumpsAway(); err != nil {
		return nil, fmt.Errorf("finding sites: %w", err)
	}
	if err := fd.libraryCalls(); err != nil {
		return nil, fmt.Errorf("finding sites: %w", err)
	}
	fd.refuseGo()
	return fd.sites, nil
}

// ordinary finds the sites of functions that are not Go's.
func (fd *finder) ordinary() error {
	im := fd.im
	fd.walk = im.m.prologues(im.code)
	fd.sites = bigslice.Make[Site](0, len(im.funcs.list)+16)
	if err := fd.tables(); err != nil {
		return err
	}
	fd.calls()
	fd.unlisted()
	parallel.Ranges(len(fd.sites), piece, func(from, to int) {
		own := fd.own()
		for i := from; i < to; i++ {
			own.exclude(&fd.sites[i])
		}
	})
	fd.choose()
	sortSites(fd.sites)
	fd.jumps()
	fd.functionsWithout()
	sortSites(fd.sites)
	fd.bolt()
	fd.sites = slices.DeleteFunc(fd.sites, func(s Site) bool { return fd.golang.HasGo(s.Func) || isGoMark(&s) })
	return fd.plain()
}

func compareSites(a, b Site) int {
	if c := cmp.Compare(a.Func, b.Func); c != 0 {
		return c
	}
	return cmp.Compare(a.Addr, b.Addr)
}

// sortSites sorts stably. Sites are added in runs that are sorted: those of one table, those of calls, the functions
// without any. They are large to move about, so usual cases need no sort: one run, and two to merge.
func sortSites(sites []Site) {
	before := func(a, b *Site) bool { return a.Func < b.Func || a.Func == b.Func && a.Addr < b.Addr }
	run := func(from int) int {
		for i := from + 1; i < len(sites); i++ {
			if before(&sites[i], &sites[i-1]) {
				return i
			}
		}
		return len(sites)
	}
	first := run(0)
	switch {
	case first == len(sites):
		return
	case run(first) < len(sites):
		slices.SortStableFunc(sites, compareSites)
		return
	}
	// From the end, so that only the second run, usually the shorter one, has to be out of the way.
	a, b := first-1, slices.Clone(sites[first:])
	for to := len(sites) - 1; len(b) > 0; to-- {
		if last := &b[len(b)-1]; a >= 0 && before(last, &sites[a]) {
			sites[to] = sites[a]
			a--
		} else {
			sites[to], b = *last, b[:len(b)-1]
		}
	}
}

// finder collects the sites of one image.
type finder struct {
	im     *image
	m      *machine
	o      Options
	prof   *profiling
	sites  []Site
	listed []uint64 // addresses of instructions a table has named, sorted
	gaps   gaps
	walk   prologues
	swept  *plain.Finder // nil until it is needed
	golang *golang.Image // whose functions are left out, and C's found; nil: the image is none
}

// piece is how many sites a goroutine is given at once.
const piece = 4096

// own is a finder for another goroutine, which must add nothing: what remembers the last place asked for is its own.
func (fd *finder) own() *finder {
	f, im, code := *fd, *fd.im, *fd.im.code
	im.code = &code
	f.im, f.gaps, f.walk = &im, gaps{im: &im}, nil
	return &f
}

// add completes a site and keeps it.
func (fd *finder) add(s Site) {
	fd.complete(&s)
	fd.sites = append(fd.sites, s)
}

// complete adds what is known of a site's function.
func (fd *finder) complete(s *Site) {
	if i := fd.im.funcs.at(s.Func); i >= 0 {
		fn := &fd.im.funcs.list[i]
		s.Name, s.Size, s.Aliases = fn.Name, fn.Size, fd.im.aliases(fn)
		if s.Source == SourceScan {
			s.Source = fn.Source
		}
	}
	if s.Addr%fd.m.Align() != 0 {
		s.Len, s.Reason = 0, ReasonUnexpected
	}
	if s.Len > 0 {
		if b := fd.im.code.From(s.Addr); len(b) >= s.Len {
			s.Bytes = b[:s.Len:s.Len]
		} else {
			s.Len, s.Reason = 0, ReasonNotExecutable
		}
	}
}

// exclude gives a reason to sites that are where they should be but must be left alone.
func (fd *finder) exclude(s *Site) {
	if s.Reason != "" {
		return
	}
	if fd.im.isResolver(s.Func) {
		s.Reason = ReasonIfuncResolver
		return
	}
	switch r := fd.im.code.Region(s.Addr); {
	case s.Func == fd.im.f.Header.Entry:
		s.Reason = ReasonEntryPoint
	case r == nil:
		s.Reason = ReasonNotExecutable
	case strings.HasPrefix(r.Name, ".fentry"):
		s.Reason = ReasonRuntime
	case fd.prof.entries[s.Func] != profNone:
		s.Reason = ReasonProfiler
	case special(s) != "":
		s.Reason = special(s)
	case s.Ret == fd.m.atEntry() || s.Ret == RetSignedLR:
		s.Reason = fd.m.refuse(fd.im, s)
	}
}

// special tells functions whose first instructions are part of a contract, wherever they come from, by their names.
func special(s *Site) Reason {
	r := contract(s.Name)
	for i := 0; r == "" && i < len(s.Aliases); i++ {
		r = contract(s.Aliases[i])
	}
	return r
}

func contract(name string) Reason {
	switch name {
	case "setjmp", "_setjmp", "__setjmp", "sigsetjmp", "__sigsetjmp", "___setjmp", "vfork", "__vfork", "__libc_vfork",
		"getcontext", "__getcontext", "swapcontext", "__swapcontext":
		return ReasonReturnsTwice
	case "__restore_rt", "__restore":
		return ReasonSignalReturn
	case "_dl_runtime_resolve", "_dl_runtime_resolve_fxsave", "_dl_runtime_resolve_xsave", "_dl_runtime_resolve_xsavec",
		"__tls_get_addr", "_dl_tlsdesc_return", "_dl_tlsdesc_undefweak", "_dl_tlsdesc_dynamic", "_dl_relocate_static_pie",
		"__morestack":
		return ReasonLoader
	}
	return ""
}

// functionsWithout lists the functions that have no site.
func (fd *finder) functionsWithout() {
	next, found := 0, len(fd.sites) // both lists are sorted by function
	for i := range fd.im.funcs.list {
		fn := &fd.im.funcs.list[i]
		for next < found && fd.sites[next].Func < fn.Addr {
			next++
		}
		if next < found && fd.sites[next].Func == fn.Addr {
			continue
		}
		s := Site{
			Func: fn.Addr, Size: fn.Size, Name: fn.Name, Aliases: fd.im.aliases(fn),
			Addr: fn.Addr, Source: fn.Source, Reason: ReasonNoSite,
		}
		switch r := fd.im.code.Region(fn.Addr); {
		case r == nil:
			s.Reason = ReasonNotExecutable
		case strings.HasPrefix(r.Name, ".fentry"):
			s.Reason = ReasonRuntime
		case fd.prof.entries[fn.Addr] != profNone:
			s.Reason = ReasonProfiler
		case fn.Part || isCold(fn.Name):
			s.Reason = ReasonColdPart
		case fd.isPatched(fn.Addr) || fd.im.hasPad(fn.Addr) && fd.isPatched(fn.Addr+code.PadLen):
			s.Reason = ReasonPatched
		}
		fd.sites = append(fd.sites, s)
	}
}

// isPatched reports whether a jump to the code fentry adds to images is at addr already.
func (fd *finder) isPatched(addr uint64) bool {
	to, ok := fd.m.jump(fd.im.code, addr)
	if !ok {
		return false
	}
	r := fd.im.code.Region(to)
	return r != nil && strings.HasPrefix(r.Name, ".fentry")
}

// isCold recognises the names gcc and clang give to parts of functions they move away: f.cold, f.cold.12.
func isCold(name string) bool {
	i := strings.LastIndex(name, ".cold")
	return i > 0 && (len(name) == i+5 || name[i+5] == '.')
}

// choose leaves one usable site to a function, of the best kind: the first added, since tables are read before calls
// are looked for.
func (fd *finder) choose() {
	used := newFuncSet(fd.im)
	for i := range fd.sites {
		if s := &fd.sites[i]; s.Reason == "" && !used.add(s.Func) {
			s.Reason = ReasonDuplicate
		}
	}
}
