//go:build linux

package fentry

// Plans of programs are kept.
//
// Of a compiler of 39,000 functions, finding the names takes 45 ms and the plan 50, and each run begins with them; a short
// one of it takes 12. What comes of that, the memory that is put into the program, is the same as long as neither the file
// nor the options nor fentry change, except for where the recorder's buffer is. So it is kept in the cache of this user
// with the symbol file, and the program's functions are found and planned only if somebody asks for more: who changes what
// is recorded while it runs. Patterns note what they match, as people are told of those that match nothing, so what they
// have matched is kept, too. A program that was executed and of which nothing is chosen has a plan as well, which traces nothing.
//
// A file whose contents are changed twice in a moment can have the same times before and after, so nothing is kept of one that
// was changed just now. And nothing is put into a process that does not have the bytes which are to be replaced.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/cache"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
)

const (
	// plansKind is the kind of the cache's entries that are plans.
	plansKind = "plans"
	// plansLimit is how many bytes they may take, and planLimit one of them.
	plansLimit, planLimit = 256 << 20, 128 << 20
	// plansFrom is from how many bytes on a program's plan is kept: configuring a package runs hundreds of smaller ones once.
	plansFrom = 32 << 10
	// plansAge is how long ago a file must have been changed.
	plansAge = 2 * time.Second
)

// plans keeps plans. Its methods are safe for concurrent use; those of nil find nothing and keep nothing.
type plans struct {
	plan    patch.Options
	find    record.Options
	symbols symbol.Options
	own     string // what identifies this fentry
	cache   *cache.Cache

	capturing *capturing

	mu       sync.Mutex
	kept     bool       // something new is in the cache
	keptCode bool       // so is changed code
	files    []*os.File // of plans that were found, which are read when all of them is needed
}

// aboutPlan is what the cache keeps beside a plan.
type aboutPlan struct {
	Image      uint64
	Traced     int
	LoadsSwaps bool // record.LoadsSwaps
	Names      aboutNames
	Untraced   string // why none is
	Loader     string // the path of the dynamic loader; "": it has none
	noted
}

// noted is what planning finds out of patterns, for people, beside the plan.
type noted struct {
	Hits     hits
	Captured aboutCaptured
}

// tell has the patterns of options, and of what is captured, which are the same, know it, and says again what was said.
func (n *noted) tell(o *patch.Options, c *capturing) {
	n.Hits.tell(o)
	c.again(&n.Captured)
}

// planNoted decides what is captured in a program, and plans that by its options, which it changes. typed is as what
// capturing.plan returns.
func planNoted(c *capturing, p *Program, o *patch.Options, by func() (*patch.Plan, error)) (plan *patch.Plan, n noted, typed bool, err error) {
	own, captured := c.apart()
	typed = own.plan(p, o)
	n.Captured = captured()
	back := apart(o)
	plan, err = by()
	n.Hits = back()
	return plan, n, typed, err
}

// hits are the patterns of a plan that have matched functions of its program ([record.Filter.Hits]).
type hits struct {
	Select, Roots, Hide []byte
	Actions             [][]byte // of rules
}

// tell has the patterns of options, which are the same, have matched functions, too.
func (h *hits) tell(o *patch.Options) {
	o.Select.Hit(h.Select)
	o.Roots.Hit(h.Roots)
	o.Hide.Hit(h.Hide)
	if o.Actions != nil {
		for i := range min(len(o.Actions.Rules), len(h.Actions)) { // more can have been captures
			o.Actions.Rules[i].Functions.Hit(h.Actions[i])
		}
	}
}

// A keptPlan is what an earlier run has planned.
type keptPlan struct {
	about  aboutPlan
	key    string
	code   string // the key of the copy with changed code
	memory *patch.Memory
}

// is tells whether it is the plan of an image.
func (p *keptPlan) is(id trace.ImageID) bool { return p != nil && trace.ImageID(p.about.Image) == id }

// newPlans returns nil if plans are not kept.
func newPlans(o *Options, capturing *capturing) *plans {
	p := &o.Plan
	if p.First != nil || p.Without != nil || !p.Actions.Filtered() || p.Keep || p.Running || o.Planned != nil ||
		o.StackEvery != 0 || len(o.Emulator) > 0 {
		return nil
	}
	var self unix.Stat_t
	if unix.Stat("/proc/self/exe", &self) != nil {
		return nil
	}
	c, err := cache.Open()
	if err != nil {
		return nil
	}
	k := &plans{plan: o.Plan, find: o.find(), symbols: o.Symbols, own: identity(&self), cache: c, capturing: capturing}
	policy := o.Policy
	if o.Live != nil {
		policy = trace.PolicyOverwrite
	}
	k.plan.Target, k.plan.Policy, k.plan.Session, k.plan.Path = patch.Process, uint32(policy), "", ""
	return k
}

// key is what the plan of a file depends on.
func (k *plans) key(path string, st *unix.Stat_t) string {
	o, find := withoutFilters(k.plan), k.find
	o.Path, find.Named = path, nil
	return cache.Key("plan", k.own, identity(st), fmt.Sprintf("%+v %+v %q", o, find, k.symbols.DebugDirs),
		k.plan.Select.Key(), k.plan.Roots.Key(), k.plan.Hide.Key(), k.plan.Actions.Key(), k.capturing.Key())
}

// withoutFilters are options but for filters.
func withoutFilters(o patch.Options) patch.Options {
	o.Select, o.Roots, o.Hide, o.Actions = nil, nil, nil, nil
	return o
}

// apart has a plan's filters know for themselves what they match. back gives those that they were made from that, and returns it.
func apart(o *patch.Options) (back func() hits) {
	of := *o
	o.Select, o.Roots, o.Hide, o.Actions = o.Select.Apart(), o.Roots.Apart(), o.Hide.Apart(), o.Actions.Apart()
	own := *o
	return func() hits {
		h := hits{Select: own.Select.Hits(), Roots: own.Roots.Hits(), Hide: own.Hide.Hits()}
		if own.Actions != nil {
			for _, r := range own.Actions.Rules {
				h.Actions = append(h.Actions, r.Functions.Hits())
			}
		}
		h.tell(&of)
		return h
	}
}

// get returns what is kept of a program's plan; nil: nothing.
func (k *plans) get(path string, st *unix.Stat_t) *keptPlan {
	if k == nil || st.Size < plansFrom {
		return nil
	}
	p := &keptPlan{key: k.key(path, st)}
	f, err := k.cache.Get(plansKind, p.key, &p.about)
	if err != nil || f == nil {
		return nil
	}
	if !p.about.Names.holds(&k.symbols) {
		f.Close()
		return nil
	}
	size, err := keptSize(f, planLimit)
	var sum uint32
	if err == nil {
		p.memory, sum, err = patch.ReadMemory(f, size, func() { k.cache.Drop(plansKind, p.key) })
	}
	if err != nil {
		f.Close()
		k.cache.Drop(plansKind, p.key) // it is damaged
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.files = append(k.files, f)
	p.code = codeKey(p.key, sum)
	return p
}

// use has a kept plan use a copy of the program with the code changed, as code does, if exe is not nil, and else reads all of the
// plan. It returns false if that is damaged.
func (k *plans) use(p *keptPlan, path string, exe *os.File, st *unix.Stat_t) bool {
	if exe != nil {
		k.code(p.code, path, exe, st, p.memory)
	}
	if p.memory.Code == nil {
		if _, err := p.memory.Whole(); err != nil {
			return false
		}
	}
	p.about.tell(&k.plan, k.capturing)
	return true
}

// readKept reads an entry's file, of up to so many bytes.
func readKept(f *os.File, limit int64) ([]byte, error) {
	size, err := keptSize(f, limit)
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	_, err = io.ReadFull(f, b)
	return b, err
}

// keptSize is the size of an entry's file, of up to so many bytes.
func keptSize(f *os.File, limit int64) (int64, error) {
	st, err := f.Stat()
	if err != nil || st.Size() > limit {
		return 0, errors.Join(err, cache.ErrNone)
	}
	return st.Size(), nil
}

// put keeps a plan of a program, with its symbol file, and returns the key of the copy with changed code; "": the plan is not
// kept. why is why nothing in it is traced; nil: something is. It is called below a Guard.
func (k *plans) put(made *planned, st *unix.Stat_t, why error) (code string) {
	p, plan, memory := made.program, made.plan, made.memory
	if k == nil || made.untyped || st.Size < plansFrom || time.Since(time.Unix(st.Ctim.Unix())) < plansAge || !memory.Keeps() {
		return ""
	}
	o, want := plan.Options, k.plan
	if o.Bare {
		want = bareOptions(want)
	}
	// What is found follows from k.find, and actions that are added from k.capturing.
	o.Path, o.Session, o.Syscalls, o.Execs, o.Errno = "", "", nil, nil, want.Errno
	if withoutFilters(o) != withoutFilters(want) {
		return "" // it was made in another way
	}
	about := aboutPlan{
		Image: plan.ImageID, Traced: plan.Traced(), LoadsSwaps: p.loadsSwaps(), Names: aboutTable(p.table),
		Loader: p.loader(), noted: made.noted,
	}
	if why != nil {
		about.Untraced = why.Error()
	}
	if p.mapped.Changed() != nil || !about.Names.holds(&k.symbols) {
		return ""
	}
	key, b := k.key(p.Path, st), patch.AppendMemory(nil, memory, p.File)
	k.cache.Drop(plansKind, key) // if there is one, it is out of date
	k.cache.Drop(namesKind, key)
	f, err := k.cache.Put(plansKind, key, "plan", &about, func(f *os.File) error {
		_, err := f.Write(b)
		return err
	})
	if err != nil {
		return "" // it is planned again the next time
	}
	f.Close()
	keepNames(k.cache, key, about.Names, planTable(p, plan))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = true
	return codeKey(key, patch.KeptSum(b))
}

// copyNames writes the symbol file of a plan. done is false if there is none: then the next run is to make both.
func (k *plans) copyNames(p *keptPlan, w io.Writer) (done bool, err error) {
	if done, err = copyNames(k.cache, p.key, &k.symbols, w); !done {
		k.cache.Drop(plansKind, p.key)
	}
	return done, err
}

// close gives back what the run has needed.
func (k *plans) close() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept {
		_ = k.cache.Trim(plansKind, plansLimit)
		_ = k.cache.Trim(namesKind, namesLimit)
	}
	if k.keptCode {
		_ = k.cache.Trim(codeKind, codeLimit)
	}
	for _, f := range k.files {
		f.Close()
	}
	k.cache.Close()
}

// openKept opens a program of which a plan is kept, and finds out nothing about it; nil: none is.
func (k *plans) openKept(path string) (p *Program, kept *keptPlan) {
	var st unix.Stat_t
	if k == nil || unix.Stat(path, &st) != nil {
		return nil, nil
	}
	if kept = k.get(path, &st); kept == nil || kept.about.Untraced != "" { // who asks for the program itself is told why
		return nil, nil
	}
	m, err := mapped.Open(path)
	if err != nil {
		return nil, nil
	}
	p = &Program{Path: path, symbols: k.symbols, keeps: true, Kept: true, mapped: m, swaps: &kept.about.LoadsSwaps}
	err = mapped.Guard(func() (err error) {
		p.File, err = elfio.Parse(m.Data)
		return err
	})
	if now, ok := statOf(m); err != nil || !ok || identity(&now) != identity(&st) {
		m.Close()
		return nil, nil
	}
	p.lacks = &k.find
	return p, kept
}

// whole finds what can be traced in a program of which a plan was kept.
func (p *Program) whole() error {
	if p.lacks == nil {
		return nil
	}
	find := *p.lacks
	p.lacks = nil
	return mapped.Guard(func() error { return p.find(find) })
}
