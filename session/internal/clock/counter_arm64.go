package clock

// counterFrequency reads CNTFRQ_EL0, ticks of the virtual count in a second.
func counterFrequency() uint64
