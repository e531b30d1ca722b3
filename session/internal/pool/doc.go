// Package pool is the shared memory that traced processes write events to, and
// what is read of its chunks.
//
//	p, err := pool.New(64<<20, trace.PolicyBlock, clock.Read(), clock.Hz())
//	p.Path()                 // for the configuration of runtimes
//	p.State(i).Load()        // free, owned by a task, full, being written
//	b := p.Chunk(i)
//	used := pool.Seal(b)     // where it ends; 0: it is no chunk
//	p.Release(i, used)       // cleared and free again
//	p.Announce()             // to tasks that wait for one
//
// All of its memory can be written by every traced process at any time: it is
// input from outside, and what is read twice can be two things.
package pool
