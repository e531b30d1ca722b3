//go:build linux

package fentry

// Arguments and results.
//
// What is captured of which function is decided for each program when it is planned, because that is when its functions
// are known: types come from its debug information, which is read only if somebody asks for arguments, and then only
// the functions that are meant. The plan gets operations as actions, and what values are made of them for readers
// as notes, which come to the symbol file from the plan, or from the patched file that has them.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/machine"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/stub"
	"github.com/fentry-dev/fentry/symbol"
)

// capturing is what is to be captured, in any program; nil: nothing.
type capturing struct {
	rules []captureRule
	// conditions are for all functions that have such an argument.
	conditions []arguments.Condition
	auto       bool
	errno      bool   // errno is captured of some function
	key        string // differs where rules do
	logf       func(format string, args ...any)
	said       *sync.Map // of what logf was given
	// tried, if not nil, gets for each function that somebody has asked for why something of it cannot be captured or
	// compared; nil: all can.
	tried func(why error)
}

// Key returns a text that differs between what is captured.
func (c *capturing) Key() string {
	if c == nil {
		return ""
	}
	return c.key
}

// aboutCaptured is what capturing has found out of a program.
type aboutCaptured struct {
	Hits [][]byte // of rules, see [record.Filter.Hits]
	Said []string
}

// apart returns the same for one plan. back gives what was found out by that to the one that it was made from, and returns it.
func (c *capturing) apart() (own *capturing, back func() aboutCaptured) {
	if c == nil {
		return nil, func() aboutCaptured { return aboutCaptured{} }
	}
	var about aboutCaptured
	one := *c
	own = &one
	own.rules = slices.Clone(c.rules)
	for i := range own.rules {
		own.rules[i].filter = c.rules[i].filter.Apart()
	}
	own.said = new(sync.Map)
	own.logf = func(format string, args ...any) {
		about.Said = append(about.Said, fmt.Sprintf(format, args...))
		c.say(format, args...)
	}
	return own, func() aboutCaptured {
		for i := range own.rules {
			about.Hits = append(about.Hits, own.rules[i].filter.Hits())
		}
		c.hit(about.Hits)
		return about
	}
}

// hit has the patterns of rules, which are the same, have matched functions, too.
func (c *capturing) hit(hits [][]byte) {
	if len(hits) == len(c.rules) {
		for i := range c.rules {
			c.rules[i].filter.Hit(hits[i])
		}
	}
}

// again says, and knows, what an earlier run has found out of a program.
func (c *capturing) again(about *aboutCaptured) {
	if c == nil {
		return
	}
	c.hit(about.Hits)
	for _, s := range about.Said {
		c.say("%s", s)
	}
}

// meant are the functions at whose calls something is done.
func (c *capturing) meant() (all []*record.Filter) {
	for i := range c.rules {
		all = append(all, c.rules[i].filter)
	}
	if c.errno {
		all = append(all, errnoFilter())
	}
	return all
}

// errnoFilter matches the function that tells where errno is.
var errnoFilter = sync.OnceValue(func() *record.Filter {
	f, err := record.NewFilter([]string{arguments.ErrnoFunction}, nil)
	if err != nil {
		panic(err) // it is a name
	}
	return f
})

// A captureRule is a spec with the functions that it is for.
type captureRule struct {
	filter     *record.Filter
	items      []arguments.Item
	conditions []arguments.Condition
	what       arguments.What
}

// A Captured knows which patterns of what is to be captured have matched functions. It is for one recording.
type Captured struct {
	mu                 sync.Mutex
	arguments, results []*record.Filter
}

// Unmatched returns the patterns of arguments and of results that have matched no traceable function so far.
func (c *Captured) Unmatched() (arguments, results []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.arguments {
		arguments = append(arguments, f.Unmatched()...)
	}
	for _, f := range c.results {
		results = append(results, f.Unmatched()...)
	}
	return arguments, results
}

// ChoosesImages reports whether a pattern is for functions of some images only.
func (c *Captured) ChoosesImages() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(slices.Concat(c.arguments, c.results), (*record.Filter).ChoosesImages)
}

// put notes the filters of arguments, and behind these those of results.
func (c *Captured) put(rules []captureRule, arguments int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range rules {
		of := &c.arguments
		if i >= arguments {
			of = &c.results
		}
		*of = append(*of, rules[i].filter)
	}
}

// Captures says of which functions arguments and results are captured, and which; Auto captures those of all functions
// that are traced and have debug information.
type Captures struct {
	Arguments, Results []arguments.Spec
	Auto               bool
	Conditions         []arguments.Condition            // see [Options]
	Captured           *Captured                        // see [Options]
	Logf               func(format string, args ...any) // see [Options]
}

// PlanCaptures adds to the options of a plan for a file what is captured of calls of its functions, which sites are, as a
// table of symbols names them.
func PlanCaptures(f *elfio.File, sites []record.Site, names *symbol.Table, o *patch.Options, c Captures) error {
	g, err := newCapturing(&Options{Plan: *o, Arguments: c.Arguments, Results: c.Results, AutoArguments: c.Auto,
		Conditions: c.Conditions, Captured: c.Captured, Logf: c.Logf})
	if err == nil {
		g.plan(&Program{Path: o.Path, File: f, Sites: sites, table: names}, o)
	}
	return err
}

func newCapturing(o *Options) (*capturing, error) {
	c := &capturing{auto: o.AutoArguments, conditions: o.Conditions, logf: o.Logf, said: new(sync.Map)}
	specs := slices.Concat(o.Arguments, o.Results)
	c.key = fmt.Sprintf("%t %d %+v %+v", c.auto, len(o.Arguments), specs, c.conditions)
	for i, s := range specs {
		f, err := record.NewFilter([]string{s.Pattern}, nil)
		if err != nil {
			return nil, err
		}
		what := s.What()
		if what == 0 && i < len(o.Arguments) {
			what = arguments.Entries
		} else if what == 0 {
			what = arguments.Exits
		}
		c.errno = c.errno || s.Errno()
		c.key += "\n" + f.Key()
		c.rules = append(c.rules, captureRule{f, s.Items, s.Conditions, what})
	}
	o.Captured.put(c.rules, len(o.Arguments))
	if !c.auto && len(c.rules) == 0 {
		return nil, nil
	}
	if o.Plan.Tracer != patch.FunctionGraph && o.Plan.Tracer != patch.Function || o.Plan.Threshold != 0 {
		return nil, errors.New("arguments and results are captured by the tracers function_graph and function, " +
			"without a threshold")
	}
	return c, nil
}

// wish is what is to be captured of a function.
type wish struct {
	what  arguments.What
	items []arguments.Item
	named bool // somebody has asked for this function
	// conditions say which calls are recorded. The first must of them somebody has asked for of this function.
	conditions []arguments.Condition
	must       int
	name       string
	// behind is where the function begins to some compilers (gcc for arm64): behind the nops that are there to be patched.
	behind uint64
	call   string // the function's name if it is a library's, of which the program has a stub, or the C library's own
}

// wishes returns what is to be captured of the functions of a program, by address. Behind a prologue registers may have
// other values than a caller has given them.
func (c *capturing) wishes(p *Program, o *patch.Options) map[uint64]*wish {
	out := make(map[uint64]*wish)
	selected := o.Chosen().In(p.Path)
	filters := make([]*record.Filter, len(c.rules))
	for i := range c.rules {
		filters[i] = c.rules[i].filter.In(p.Path)
	}
	refused, ocaml, libc := 0, 0, p.isCLibrary()
	for i := range p.Sites {
		s := &p.Sites[i]
		if !s.Traceable() {
			continue
		}
		var w wish
		if c.auto && !o.NoFunctions && (selected == nil || selected.MatchSite(s)) {
			w.what = arguments.Entries | arguments.Exits
		}
		for k, f := range filters {
			if f.MatchSite(s) {
				w.what |= c.rules[k].what
				w.items = append(w.items, c.rules[k].items...)
				w.conditions = append(w.conditions, c.rules[k].conditions...)
				w.named = true
			}
		}
		if s.Kind == record.KindOCaml { // which has registers of its own for them
			if w.named {
				ocaml++
			}
			continue
		}
		if w.what&arguments.Entries != 0 && (s.Ret == record.RetFP || s.Ret == record.RetSigned) {
			w.what &^= arguments.Entries
			w.conditions = nil
			if w.named {
				refused++
			}
		} else {
			w.must = len(w.conditions)
			w.conditions = append(w.conditions, c.conditions...)
		}
		if o.Tracer == patch.Function {
			w.what &^= arguments.Exits
		}
		if w.what != 0 {
			w.behind, w.name = s.End(), s.Name
			if s.Kind == record.KindLibCall {
				w.call, _ = strings.CutSuffix(s.Name, symbol.CallSuffix)
			} else if libc {
				w.call = p.prototyped(s)
			}
			out[s.Func] = &w
		}
	}
	if ocaml > 0 {
		c.say("%s: arguments and results of %d functions cannot be captured: they are OCaml's", p.Path, ocaml)
	}
	if refused > 0 {
		c.say("%s: arguments of %d functions cannot be captured: args-after-prologue (compile with -mfentry, or "+
			"-fpatchable-function-entry)", p.Path, refused)
	}
	return out
}

// say tells people something, once: of programs of which plans were kept what was said of them when these were made.
func (c *capturing) say(format string, args ...any) {
	if c.logf == nil {
		return
	}
	text := fmt.Sprintf(format, args...)
	if _, said := c.said.LoadOrStore(text, true); !said {
		c.logf("%s", text)
	}
}

// plan decides what is captured in a program, and adds that to the options of its plan. It returns false if types of
// functions that are meant are not known, as there is no debug information.
func (c *capturing) plan(p *Program, o *patch.Options) (typed bool) {
	if c == nil || p.File == nil {
		return true
	}
	m, ok := arguments.MachineOf(machine.Name(p.File.Header.Machine))
	if !ok {
		return true
	}
	wishes := c.wishes(p, o)
	acts := make(map[uint64][]patch.Act)
	if c.errno {
		o.Errno = true
		for i := range p.Sites { // the runtime calls it, too
			if s := &p.Sites[i]; s.Name == arguments.ErrnoFunction || slices.Contains(s.Aliases, arguments.ErrnoFunction) {
				acts[s.Func] = []patch.Act{{Kind: stub.ActQuiet}}
				delete(wishes, s.Func)
			}
		}
	}
	if len(wishes) == 0 && len(acts) == 0 {
		return true
	}
	known, err := c.types(p, m, wishes)
	if err != nil && !errors.Is(err, symbol.ErrNoLines) {
		c.say("%s: types of arguments are not known: %v", p.Path, err)
	}
	typed = true
	notes := make(map[uint64]*arguments.Capture)
	for addr, w := range wishes {
		items := w.items
		f := cmp.Or(known[addr], known[w.behind], arguments.Library(w.call))
		typed = typed && (f != nil || !errors.Is(err, symbol.ErrNoLines))
		if f == nil && len(items) == 0 && w.named {
			items = arguments.Words(w.what)
		}
		planned, why := arguments.Plan(f, m, w.what, items)
		if why != nil {
			c.say("%s: %v", p.Path, why)
		}
		if planned != nil {
			var wrong error
			planned.Checks, wrong = c.checks(p, m, f, w)
			why = cmp.Or(why, wrong)
		}
		if c.tried != nil && w.named {
			c.tried(why)
		}
		if planned == nil {
			continue
		}
		notes[addr] = planned
		acts[addr] = captureActs(planned)
	}
	if !typed {
		c.say("%s has no debug information: types of arguments are not known", p.Path)
	}
	rules := patch.Actions{}
	if o.Actions != nil {
		rules.Rules = append(rules.Rules, o.Actions.Rules...)
	}
	of := func(s *record.Site) []patch.Act { return acts[s.Func] }
	note := func(s *record.Site) string {
		if planned := notes[s.Func]; planned != nil {
			return captureText(planned)
		}
		return ""
	}
	rules.Rules = append(rules.Rules, patch.ActRule{Of: of, Note: note, Key: p.Path})
	o.Actions = &rules
	return typed
}

// captureText is what readers are told of a capture.
func captureText(c *arguments.Capture) string {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // nothing in it can fail
	}
	return string(b)
}

// checks are what says which calls of a function are recorded. Others than those that were asked for of just this function
// are left out if it has no such argument. The error is why one that was asked for cannot be made.
func (c *capturing) checks(
	p *Program, m arguments.Machine, f *arguments.Func, w *wish,
) (checks []*arguments.Check, wrong error) {
	for i := range w.conditions {
		cond := &w.conditions[i]
		check, err := arguments.PlanCheck(f, m, cond)
		switch {
		case err == nil:
			checks = append(checks, check)
		case i < w.must || !errors.Is(err, arguments.ErrNoArgument):
			c.say("%s: %s: all calls are recorded: %s: %v", p.Path, w.name, cond.Name, err)
		}
		if err != nil && i < w.must {
			wrong = fmt.Errorf("%s: %s: %w", w.name, cond.Name, err)
		}
	}
	return checks, wrong
}

// captureActs are the actions that capture something.
func captureActs(c *arguments.Capture) (acts []patch.Act) {
	for _, check := range c.Checks {
		acts = append(acts, patch.Act{Kind: stub.ActIf, Data: check.Encode()})
	}
	add := func(kind stub.ActionKind, ops []arguments.Op, plain uint8) {
		if len(ops) > 0 {
			b, most := arguments.Encode(ops)
			acts = append(acts, patch.Act{Kind: kind, Words: most, Data: b, Plain: plain})
		}
	}
	add(stub.ActArgs, c.Entry, arguments.PlainEntry(c.Entry))
	add(stub.ActResult, c.Exit, arguments.PlainResult(c.Exit))
	return acts
}

// isCLibrary reports whether an image is a C library, of whose functions the prototypes are known.
func (p *Program) isCLibrary() bool {
	name, err := p.File.Soname()
	return err == nil && (strings.HasPrefix(name, "libc.so") || strings.HasPrefix(name, "libc.musl"))
}

// prototyped is the name of a C library's function, one of several, of which there is a prototype; "": there is none.
func (p *Program) prototyped(s *record.Site) string {
	for _, name := range slices.Concat([]string{s.Name}, s.Aliases) {
		if arguments.Library(name) != nil {
			return name
		}
	}
	return ""
}

// types reads what debug information says of functions. Without it, or with what cannot be read, programs are traced
// all the same.
func (c *capturing) types(p *Program, m arguments.Machine, wishes map[uint64]*wish) (map[uint64]*arguments.Func, error) {
	d, err := p.table.DWARF()
	if err != nil {
		return nil, err
	}
	addrs := make(map[uint64]bool, len(wishes))
	for a, w := range wishes {
		addrs[a], addrs[w.behind] = true, true
	}
	return arguments.Functions(d, m, addrs, func(addr uint64) string {
		fn, _ := p.table.Lookup(addr)
		return fn.Name
	})
}
