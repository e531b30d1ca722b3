package arch

// A GoEvent is an event of a Go function, which is recorded in place: see the packages of the machines.
type GoEvent struct {
	ID     uint32 // of the function, with bit 31 for an end
	Switch uint64 // address of the function's switch
	IDBase uint64 // address of the word that is added to ID
	GoID   uint32 // where in runtime.g the goroutine's number is
	Thread uint32 // arm64: where in runtime.m the thread's control base is, if TLS is 0
	TLS    uint64 // arm64: how far behind the thread pointer it is, in programs whose thread pointer is the C library's
	Rare   uint64 // address of its other part
	Slow   uint64 // address of the runtime's routine
	Always bool   // all go to that routine
	Deep   bool   // with the bit GoDeep in the id
}

// GoDeep is the bit of an id, as the runtime's routine gets it, of events that tell how deep in its stack the call is.
const GoDeep = 1 << 30

// RareID is the id that the runtime's routine gets.
func (e *GoEvent) RareID() uint32 {
	if e.Deep {
		return e.ID | GoDeep
	}
	return e.ID
}

// A GoReturn is an instruction in the middle of what is rewritten of a Go function, and its copy.
type GoReturn struct{ From, To uint64 }

// A GoShape is how long the code of an event is, and where in it something begins that Go's runtime has to know.
type GoShape struct {
	Begin  int // it begins here again after an interruption
	Taken  int // a slot has been reserved
	Stored int // and written
	Len    int
	Rare   int // length of the other part
}
