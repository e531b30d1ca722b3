//go:build linux

package fentry

import (
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// sample has a session take stacks on a timer, if that is asked for. Where functions are traced the runtime in the program
// does, at their events: it knows where return addresses are. Where the kernel does not allow it, the program's system calls
// do.
func (r *run) sample(so *session.Options) {
	if r.o.StackEvery == 0 {
		return
	}
	if r.o.Plan.NoFunctions {
		err := session.CanSample(r.o.StackEvery)
		if err == nil {
			so.SampleEvery = r.o.StackEvery
			return
		}
		so.Info.Samples = &trace.InfoSamples{Every: r.o.StackEvery, Reason: err.Error()}
		if r.o.Logf != nil {
			r.o.Logf("stacks are taken at system calls only: %v", err)
		}
		r.o.Syscalls = true
	} else {
		so.Info.Samples = &trace.InfoSamples{Every: r.o.StackEvery, Reason: "functions are traced"}
	}
	r.o.Plan.StackEvery = r.o.StackEvery
}
