// Package adapt decides which functions a traced program stops recording, so that tracing does not cost more than its
// user wants to pay.
//
//	m := adapt.New(adapt.Options{Limit: 0.5, Event: 17.5}, clock.Read())
//	m.Tick(clock.Read())
//	m.Chunk(task, begin, words, events)   // every chunk of events that programs have filled
//	off := m.Decide(may)                  // what is to be switched off now
//	...                                   // programs are told
//	m.Done(off, clock.Read().Counter)
//
// It knows nothing about the pool or about how programs are told. All that it reads is the programs' word, of which
// it takes numbers: no input makes it fail, or keep more than a bounded amount of memory.
package adapt
