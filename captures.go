//go:build linux

package fentry

// Arguments and results.
//
// What is captured of which function is decided for each program when it is planned, because that is when its functions
// are known: types come from its debug information, which is read only if somebody asks for arguments, and then only
// the functions that are meant. The plan gets operations as actions, readers get values by the symbol file.

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/internal/machine"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/stub"
	"github.com/fentry-dev/fentry/symbol"
)

// capturing is what is to be captured, in any program; nil: nothing.
type capturing struct {
	rules []captureRule
	auto  bool
	logf  func(format string, args ...any)
}

// A captureRule is a spec with the functions that it is for.
type captureRule struct {
	filter *record.Filter
	items  []arguments.Item
	what   arguments.What
}

// captures is what is captured of the functions of a program, by address.
type captures map[uint64]*arguments.Capture

func newCapturing(o *Options) (*capturing, error) {
	c := &capturing{auto: o.AutoArguments, logf: o.Logf}
	for i, s := range slices.Concat(o.Arguments, o.Results) {
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
		c.rules = append(c.rules, captureRule{f, s.Items, what})
	}
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
	// behind is where the function begins to some compilers (gcc for arm64): behind the nops that are there to be patched.
	behind uint64
	call   string // the function's name if it is a library's, of which the program has a stub
}

// wishes returns what is to be captured of the functions of a program, by address. Behind a prologue registers may have
// other values than a caller has given them.
func (c *capturing) wishes(p *Program, o *patch.Options) map[uint64]*wish {
	out := make(map[uint64]*wish)
	selected := o.Select.In(p.Path)
	filters := make([]*record.Filter, len(c.rules))
	for i := range c.rules {
		filters[i] = c.rules[i].filter.In(p.Path)
	}
	refused := 0
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
				w.named = true
			}
		}
		if w.what&arguments.Entries != 0 && (s.Ret == record.RetFP || s.Ret == record.RetSigned) {
			w.what &^= arguments.Entries
			if w.named {
				refused++
			}
		}
		if o.Tracer == patch.Function {
			w.what &^= arguments.Exits
		}
		if w.what != 0 {
			w.behind = s.End()
			if s.Kind == record.KindLibCall {
				w.call, _ = strings.CutSuffix(s.Name, symbol.CallSuffix)
			}
			out[s.Func] = &w
		}
	}
	if refused > 0 {
		c.say("%s: arguments of %d functions cannot be captured: args-after-prologue (compile with -mfentry, or "+
			"-fpatchable-function-entry)", p.Path, refused)
	}
	return out
}

func (c *capturing) say(format string, args ...any) {
	if c.logf != nil {
		c.logf(format, args...)
	}
}

// plan decides what is captured in a program, and adds that to the options of its plan.
func (c *capturing) plan(p *Program, o *patch.Options) {
	if c == nil || p.File == nil {
		return
	}
	m, ok := arguments.MachineOf(machine.Name(p.File.Header.Machine))
	if !ok {
		return
	}
	wishes := c.wishes(p, o)
	if len(wishes) == 0 {
		return
	}
	known := c.types(p, m, wishes)
	p.captures = make(captures)
	acts := make(map[uint64][]patch.Act)
	for addr, w := range wishes {
		items := w.items
		f := cmp.Or(known[addr], known[w.behind], arguments.Library(w.call))
		if f == nil && len(items) == 0 && w.named {
			items = arguments.Words(w.what)
		}
		planned, err := arguments.Plan(f, m, w.what, items)
		if err != nil {
			c.say("%s: %v", p.Path, err)
		}
		if planned == nil {
			continue
		}
		p.captures[addr] = planned
		acts[addr] = captureActs(planned)
	}
	rules := patch.Actions{}
	if o.Actions != nil {
		rules.Rules = append(rules.Rules, o.Actions.Rules...)
	}
	of := func(s *record.Site) []patch.Act { return acts[s.Func] }
	rules.Rules = append(rules.Rules, patch.ActRule{Of: of, Key: p.Path})
	o.Actions = &rules
}

// captureActs are the actions that capture something.
func captureActs(c *arguments.Capture) (acts []patch.Act) {
	add := func(kind stub.ActionKind, ops []arguments.Op) {
		if len(ops) > 0 {
			b, most := arguments.Encode(ops)
			acts = append(acts, patch.Act{Kind: kind, Words: most, Data: b})
		}
	}
	add(stub.ActArgs, c.Entry)
	add(stub.ActResult, c.Exit)
	return acts
}

// types reads what debug information says of functions. Without it, or with what cannot be read, programs are traced
// all the same.
func (c *capturing) types(p *Program, m arguments.Machine, wishes map[uint64]*wish) map[uint64]*arguments.Func {
	d, err := p.table.DWARF()
	if errors.Is(err, symbol.ErrNoLines) {
		c.say("%s has no debug information: types of arguments are not known", p.Path)
		return nil
	}
	addrs := make(map[uint64]bool, len(wishes))
	for a, w := range wishes {
		addrs[a], addrs[w.behind] = true, true
	}
	var known map[uint64]*arguments.Func
	if err == nil {
		known, err = arguments.Functions(d, m, addrs, func(addr uint64) string {
			fn, _ := p.table.Lookup(addr)
			return fn.Name
		})
	}
	if err != nil {
		c.say("%s: types of arguments are not known: %v", p.Path, err)
	}
	return known
}

// texts are the captures of a plan's functions, by id, as symbol files have them.
func (c captures) texts(plan *patch.Plan) map[uint32]string {
	var out map[uint32]string
	for i := range plan.Functions {
		fn := &plan.Functions[i]
		if planned := c[fn.Func]; planned != nil && fn.ID != 0 {
			b, err := json.Marshal(planned)
			if err != nil {
				panic(err) // nothing in it can fail
			}
			if out == nil {
				out = make(map[uint32]string)
			}
			out[fn.ID] = string(b)
		}
	}
	return out
}
