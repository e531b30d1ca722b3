// Package drain moves what traced programs have recorded from the pool to the
// events file of a trace directory.
//
//	d := drain.New(p, file, policy, liveness)
//	go d.Run()               // until d.Stop()
//	d.Last(alone)            // what is left when nobody records any more
//	d.Counts()
//
// A chunk goes from free to owned by its task to full to being written to free
// again (drain.go). Tasks that end without handing their chunk over are found by
// asking whether they live (liveness.go, reclaim.go). A full chunk in which a slot
// is still to be written is held (held.go).
package drain
