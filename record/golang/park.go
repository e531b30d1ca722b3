package golang

import (
	"encoding/json"

	"github.com/fentry-dev/fentry/arguments"
)

// A waitReason is one for which goroutines wait. The runtime numbers them from 0, in an order that
// differs between versions.
type waitReason struct {
	name string
	from int // the first minor version that has it, 0: all have
	to   int // the last one, 0: there is none
}

// waitReasons are those of all versions, as the runtime prints them (waitReasonStrings).
var waitReasons = []waitReason{
	{name: "none"}, {name: "GC assist marking"}, {name: "IO wait"},
	{name: "chan receive (nil chan)", to: 25}, {name: "chan send (nil chan)", to: 25},
	{name: "dumping heap"}, {name: "garbage collection"}, {name: "garbage collection scan"}, {name: "panicwait"},
	{name: "select", to: 25}, {name: "select (no cases)", to: 25},
	{name: "GC assist wait"}, {name: "GC sweep wait"}, {name: "GC scavenge wait"},
	{name: "chan receive", to: 25}, {name: "chan send", to: 25},
	{name: "finalizer wait"}, {name: "force gc (idle)"}, {name: "GOMAXPROCS updater (idle)", from: 25},
	{name: "semacquire"}, {name: "sleep"},
	{name: "chan receive (nil chan)", from: 26}, {name: "chan send (nil chan)", from: 26},
	{name: "select (no cases)", from: 26}, {name: "select", from: 26},
	{name: "chan receive", from: 26}, {name: "chan send", from: 26},
	{name: "sync.Cond.Wait"}, {name: "sync.Mutex.Lock"}, {name: "sync.RWMutex.RLock"}, {name: "sync.RWMutex.Lock"},
	{name: "sync.WaitGroup.Wait", from: 24},
	{name: "trace reader (blocked)"}, {name: "wait for GC cycle"}, {name: "GC worker (idle)"}, {name: "GC worker (active)"},
	{name: "preempted"}, {name: "debug call"}, {name: "GC mark termination"}, {name: "stopping the world"},
	{name: "flushing proc caches", from: 22}, {name: "trace goroutine status", from: 22}, {name: "trace proc status", from: 22},
	{name: "page trace flush", from: 22}, {name: "coroutine", from: 22}, {name: "GC weak to strong wait", from: 23},
	{name: "synctest.Run", from: 24}, {name: "synctest.Wait", from: 24},
	{name: "chan receive (synctest)", from: 24, to: 24}, {name: "chan send (synctest)", from: 24, to: 24},
	{name: "select (synctest)", from: 24, to: 24},
	{name: "chan receive (durable)", from: 25}, {name: "chan send (durable)", from: 25}, {name: "select (durable)", from: 25},
	{name: "sync.WaitGroup.Wait (durable)", from: 25}, {name: "cleanup wait", from: 25},
}

// WaitReasons are why goroutines wait, by number.
func (v *Version) WaitReasons() []string {
	if v.Source != Tried {
		return v.reasons
	}
	var names []string
	for _, r := range waitReasons {
		if r.from <= v.minor && (r.to == 0 || v.minor <= r.to) {
			names = append(names, r.name)
		}
	}
	return names
}

// ParkNote says what is captured of calls of [Park]: why the goroutine waits.
func (v *Version) ParkNote() string {
	t := &arguments.Type{Kind: arguments.Enum, Name: "runtime.waitReason", Size: 1}
	for i, name := range v.WaitReasons() {
		t.Enum = append(t.Enum, arguments.Enumerator{Name: name, Value: int64(i)})
	}
	b, err := json.Marshal(arguments.Capture{Params: []arguments.Value{{Name: "reason", Type: t, Words: 1}}})
	if err != nil {
		panic(err) // it has nothing that cannot be encoded
	}
	return string(b)
}

// ReadyNote says what is captured of calls of [Ready]: the number of the goroutine.
func ReadyNote() string {
	t := &arguments.Type{Kind: arguments.Uint, Size: 8}
	b, err := json.Marshal(arguments.Capture{Params: []arguments.Value{{Name: "goroutine", Type: t, Words: 1}}})
	if err != nil {
		panic(err) // as above
	}
	return string(b)
}
