package fentry

import (
	"github.com/fentry-dev/fentry/internal/triggers"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/stub"
)

// triggerKinds are the runtime's names of actions. Each but DEPTH writes one record, a header and two words.
var triggerKinds = map[triggers.Kind]stub.ActionKind{
	triggers.TraceOn: stub.ActTraceOn, triggers.TraceOff: stub.ActTraceOff, triggers.StackTrace: stub.ActStackTrace,
	triggers.Depth: stub.ActDepth, triggers.Finish: stub.ActFinish, triggers.Snapshot: stub.ActSnapshot,
}

const triggerWords = 3

// triggerActs are what the runtime is to do for a trigger.
func triggerActs(t *triggers.Trigger) (acts []patch.Act) {
	for _, a := range t.Actions {
		kind, ok := triggerKinds[a.Kind]
		if !ok {
			continue
		}
		if kind.Timed() {
			a.Value = uint64(t.Over)
		}
		acts = append(acts, patch.Act{Kind: kind, Words: triggerWords, Value: a.Value, Limit: a.Limit})
	}
	return acts
}

// Triggers returns, for [patch.Options], what triggers say: FUNCTION@ACTION[:COUNT][,ACTION...], as fentry record --trigger
// has them. nil: nothing is to be done. An error names the trigger, and the place in it.
func Triggers(specs []string) (*patch.Actions, error) {
	var actions patch.Actions
	for _, s := range specs {
		t, err := triggers.Parse(s)
		if err != nil {
			return nil, err
		}
		rule := patch.ActRule{Acts: triggerActs(t)}
		if rule.Functions, err = record.NewFilter([]string{t.Functions}, nil); err != nil {
			return nil, err
		}
		if rule.Acts != nil {
			actions.Rules = append(actions.Rules, rule)
		}
	}
	if actions.Rules == nil {
		return nil, nil
	}
	return &actions, nil
}
