//go:build linux

package session

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/trace"
)

// What is done at calls of functions, as [Control] changes it while processes run: the settings trigger, arguments and
// results. What was planned is there besides, and stays.
//
// Functions that are off for a filter have their switch on if something is to be done at their calls, which then leave
// nothing else in the trace.

// A Doing is something that is done at calls of functions, as a spec says it.
type Doing struct {
	Functions string // the pattern of these
	// Of returns what the functions of an image have, by local id; it can be called concurrently.
	Of func(image trace.ImageID) (map[uint32][]patch.Act, error)
	// Refused is why it cannot be done at calls of any of the functions that Of has found so far. Nil, or returning nil: it can of
	// some, or none was found.
	Refused func() error
	// Errno is where the runtime finds errno in an image, as patch.Plan.Errno has it; nil: it need not.
	Errno func(image trace.ImageID) (int64, error)
}

// A SpecError says where in a spec something is wrong.
type SpecError struct {
	At  int // bytes before it
	Why string
}

func (e *SpecError) Error() string { return e.Why }

// Settings of what is done.
const (
	setTrigger   = "trigger"
	setArguments = "arguments"
	setResults   = "results"
)

// doingSettings are these.
var doingSettings = []string{setTrigger, setArguments, setResults}

// A doing is one of a session.
type doing struct {
	setting, spec string
	*Doing
}

// ftraceCommand is what a pattern ends with that is a command of ftrace's: func:traceoff:3.
var ftraceCommand = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(!?)(.+):(traceon|traceoff|stacktrace|snapshot|finish)(?::([0-9]+|unlimited))?$`)
})

// asTrigger returns a trigger that stands among patterns, as ftrace has it, and whether it takes it away.
func asTrigger(text string) (spec string, takes, ok bool) {
	m := ftraceCommand().FindStringSubmatch(text)
	if m == nil {
		return "", false, false
	}
	spec = m[2] + "@" + m[3]
	if m[4] != "" && m[4] != "unlimited" && m[1] == "" {
		spec += ":" + m[4]
	}
	return spec, m[1] != "", true
}

// withDoing is what is done once a command has changed it.
func (s *session) withDoing(all []doing, setting, op string, values []word) ([]doing, *ControlError) {
	out := slices.Clone(all)
	if op == "=" {
		out = slices.DeleteFunc(out, func(d doing) bool { return d.setting == setting })
	}
	for _, v := range values {
		if op == "-=" {
			n := len(out)
			if out = slices.DeleteFunc(out, func(d doing) bool { return d.setting == setting && sameDoing(d.spec, v.text) }); len(out) == n {
				return nil, &ControlError{v.at, "there is no such " + setting}
			}
			continue
		}
		d, err := s.doing(setting, v)
		if err != nil {
			return nil, err
		}
		out = append(slices.DeleteFunc(out, func(o doing) bool { return o.setting == setting && sameDoing(o.spec, v.text) }), d)
	}
	if len(out) > maxRules {
		return nil, &ControlError{values[0].at, "there is too much to be done at calls"}
	}
	return out, nil
}

// sameDoing tells whether one spec takes the place of another: the same functions, and the same is done, however often.
func sameDoing(a, b string) bool {
	cut := regexp.MustCompile(`:[0-9]+`)
	return cut.ReplaceAllString(a, "") == cut.ReplaceAllString(b, "")
}

// doing understands a spec. There must be a function that it is for.
func (s *session) doing(setting string, v word) (d doing, wrong *ControlError) {
	if s.o.Doing == nil {
		return d, &ControlError{v.at, "functions have no names in this recording"}
	}
	what, err := s.o.Doing(setting, v.text)
	var at *SpecError
	if errors.As(err, &at) {
		return d, &ControlError{v.at + at.At, at.Why}
	}
	if err != nil {
		return d, &ControlError{v.at, err.Error()}
	}
	matched := false
	images := s.switchable()
	if err := s.withMore(images, []string{what.Functions}); err != nil {
		return d, &ControlError{v.at, err.Error()}
	}
	for image := range images {
		acts, err := what.Of(image)
		if errors.As(err, &at) {
			return d, &ControlError{v.at + at.At, at.Why}
		}
		if err != nil {
			return d, &ControlError{v.at, err.Error()}
		}
		matched = matched || len(acts) > 0
	}
	if what.Refused != nil {
		if why := what.Refused(); why != nil {
			return d, &ControlError{v.at, why.Error()}
		}
	}
	if !matched {
		return d, &ControlError{v.at, unmatched(images)}
	}
	return doing{setting, v.text, what}, nil
}

// acts are what is done at calls of an image's functions besides what was planned, by local id.
func (s *settings) acts(image trace.ImageID) (map[uint32][]patch.Act, error) {
	if len(s.doing) == 0 {
		return nil, nil
	}
	on, err := s.recorded(image)
	if err != nil {
		return nil, err
	}
	all := make([]map[uint32][]patch.Act, len(s.doing))
	for i, d := range s.doing {
		if all[i], err = d.Of(image); err != nil {
			return nil, err
		}
	}
	out := make(map[uint32][]patch.Act)
	for i, acts := range all {
		for id, a := range acts {
			if !s.superseded(i, id, all) {
				out[id] = patch.AddActs(out[id], a)
			}
		}
	}
	for id, acts := range out {
		if on != nil && !on(id) {
			out[id] = slices.Concat(patch.Quiet(acts), acts)
		}
	}
	return out, nil
}

// superseded tells whether what a later spec captures of a function takes the place of what the one at i does.
func (s *settings) superseded(i int, id uint32, all []map[uint32][]patch.Act) bool {
	setting := s.doing[i].setting
	for j := i + 1; j < len(all) && setting != setTrigger; j++ {
		if s.doing[j].setting == setting && len(all[j][id]) > 0 {
			return true
		}
	}
	return false
}

// errno is where the runtime is to find errno in an image; 0: nowhere, or it need not.
func (s *settings) errno(image trace.ImageID) (int64, error) {
	for _, d := range s.doing {
		if d.Errno == nil {
			continue
		}
		if at, err := d.Errno(image); at != 0 || err != nil {
			return at, err
		}
	}
	return 0, nil
}

// doingText is the specs of a setting.
func (s *settings) doingText(setting string) string {
	var specs []string
	for _, d := range s.doing {
		if d.setting == setting {
			specs = append(specs, d.spec)
		}
	}
	return strings.Join(specs, " ")
}

// changed gives settings a number if what is done at calls is, or was, not only what was planned: processes have to be told.
func (s *settings) changed(was *settings) {
	if len(s.doing) > 0 || len(was.doing) > 0 {
		s.edition = was.edition + 1
	}
}

// takeTriggers takes what are commands of ftrace's out of the patterns of a command, and has them done.
func (s *session) takeTriggers(c *command, to *settings) *ControlError {
	if c.name.text != "set_ftrace_filter" {
		return nil
	}
	var patterns []word
	for _, v := range c.values {
		spec, takes, ok := asTrigger(v.text)
		if !ok {
			patterns = append(patterns, v)
			continue
		}
		op := "+="
		if takes || c.op.text == "-=" {
			op = "-="
		}
		next, err := s.withDoing(to.doing, setTrigger, op, []word{{spec, v.at}})
		if err != nil {
			err.Column = v.at
			return err
		}
		to.doing, c.triggers = next, true
	}
	c.values = patterns
	return nil
}

// did takes note of whether what was asked for is done at calls, and has readers know what is captured from now on.
func (s *session) did(done bool) {
	if s.o.Did == nil {
		return
	}
	for _, image := range s.o.Did(done) {
		if err := s.renewSymbols(image); err != nil {
			s.logf("what is captured cannot be told to readers: %v", err)
		}
	}
}
