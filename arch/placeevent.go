package arch

// A PlaceEvent is an event of a function that has no thunk, whose registers leave room for one call of a routine: see the
// packages of the machines.
type PlaceEvent struct {
	ID      uint32 // of the function in its image, with bit 31 for an end
	Switch  uint64 // address of the function's switch
	Routine uint64 // of the runtime's routine
}
