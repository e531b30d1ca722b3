package switches

import "encoding/binary"

var le = binary.LittleEndian

// kind is what a record tells.
type kind uint8

const (
	out     kind = iota + 1 // the thread left the processor to wait
	yielded                 // it left the processor and could have gone on
	in                      // it is on a processor
	begins                  // a new thread
	ends                    // its last moment
	lost                    // the kernel had no room for records
	unknown                 // until until, records can be missing
)

// A record is what the kernel tells. Times are CLOCK_MONOTONIC in ns.
type record struct {
	kind     kind
	pid, tid uint32 // of the thread, as this process sees it
	parent   uint32 // begins: the process that has made it
	time     uint64
	until    uint64
	count    uint64 // lost: so many records
}

// Records of linux/perf_event.h. Each begins with a header: type, flags, size; at the end is what sample_id_all adds, the
// ids of the thread and the time.
const (
	recordHeader = 8
	sampleID     = 16

	typeLost   = 2
	typeExit   = 4
	typeFork   = 7
	typeSwitch = 14

	flagOut     = 1 << 13
	flagPreempt = 1 << 14
)

// parse reads a record; ok is false if it tells nothing that matters.
func parse(b []byte) (r record, ok bool) {
	if len(b) < recordHeader+sampleID {
		return r, false
	}
	flags, body, end := le.Uint16(b[4:]), b[recordHeader:len(b)-sampleID], b[len(b)-sampleID:]
	r.pid, r.tid, r.time = le.Uint32(end), le.Uint32(end[4:]), le.Uint64(end[8:])
	switch typ := le.Uint32(b); {
	case typ == typeSwitch && flags&flagOut == 0:
		r.kind = in
	case typ == typeSwitch && flags&flagPreempt != 0:
		r.kind = yielded
	case typ == typeSwitch:
		r.kind = out
	case typ == typeLost && len(body) >= 16:
		r.kind, r.count = lost, le.Uint64(body[8:])
	case (typ == typeFork || typ == typeExit) && len(body) >= 24:
		r.kind = begins
		if typ == typeExit {
			r.kind = ends
		}
		r.pid, r.parent, r.tid, r.time = le.Uint32(body), le.Uint32(body[4:]), le.Uint32(body[8:]), le.Uint64(body[16:])
	default:
		return r, false
	}
	return r, true
}
