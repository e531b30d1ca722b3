//go:build linux

package session

import (
	"bytes"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// The numbers here are those of the format's table, which stub/src/format.h is
// made from.
func TestLayout(t *testing.T) {
	b, err := os.ReadFile("../stub/src/format.h")
	if err != nil {
		t.Fatal(err)
	}
	have := make(map[string]uint64)
	for _, m := range regexp.MustCompile(`(?m)^#define FT_(\w+)\s+(\w+)`).FindAllSubmatch(b, -1) {
		if v, err := strconv.ParseUint(string(m[2]), 0, 64); err == nil {
			have[string(m[1])] = v
		}
	}
	for name, want := range map[string]uint64{
		"FILE_MAGIC": le.Uint64([]byte(fileMagic)), "VERSION": formatVersion, "HEADER_SIZE": headerSize,
		"H_MAGIC": hMagic, "H_VERSION": hVersion, "H_HEADER_SIZE": hHeaderSize, "H_CHUNK_SIZE": hChunkSize, "H_CHUNKS": hChunks,
		"H_POLICY": hPolicy, "H_RECORDER": hRecorder, "H_NEXT": hNext, "H_FREED": hFreed, "H_FILLED": hFilled,
		"H_HEARTBEAT": hHeartbeat, "H_CLOSED": hClosed, "H_WAITERS": hWaiters, "H_LEADER": hLeader, "H_LEADER_START": hLeaderStart,
		"H_COUNTER": hCounter, "H_MONOTONIC": hMonotonic, "H_REALTIME": hRealtime, "H_COUNTER_HZ": hCounterHZ, "H_LOST": hLost,
		"H_LAYOUT": hLayout, "H_STATES": statesOff,
		"CHUNK_SIZE": chunkSize, "CHUNK_MAGIC": chunkMagic, "CHUNK_HEADER": chunkHeader,
		"C_MAGIC": cMagic, "C_KIND": cKind, "C_SIZE": cSize, "C_PID": cPID, "C_TID": cTID, "C_NUMBER": cNumber,
		"C_COUNTER": cCounter, "C_IMAGE": cImage, "C_KEY": cKey, "C_LOST": cLost,
		"STATE_FREE": stateFree, "STATE_OWNED": stateOwned, "STATE_FULL": stateFull, "STATE_WRITING": stateWriting,
		"RESERVED_BASE": reservedBase,
	} {
		if got, ok := have[name]; !ok || got != want {
			t.Errorf("%s is %d here, %d in the table", name, want, got)
		}
	}
	// How many words follow a reserved event.
	for name, code := range have {
		m := regexp.MustCompile(`^EV_([A-Z_]+)$`).FindStringSubmatch(name)
		if m == nil || code < reservedBase {
			continue
		}
		words, ok := have[name+"_WORDS"]
		if !ok {
			t.Fatalf("no %s_WORDS", name)
		}
		ev := le.AppendUint64(nil, code<<32|1)
		for range words {
			ev = le.AppendUint64(ev, 5<<32|1) // would count as an event
		}
		ev = le.AppendUint64(ev, 6<<32|1)
		// At every place within the words that are looked at together.
		var head []byte
		for i := range uint64(20) {
			b := append(bytes.Clone(head), ev...)
			if n, hole := countEvents(b); n != i+1 || hole >= 0 {
				t.Errorf("%s behind %d events: %d counted, want %d; hole %d", name, i, n, i+1, hole)
			}
			at := len(b)
			b = append(b, make([]byte, 16)...)
			if n, hole := countEvents(append(b, head...)); n != 2*i+1 || hole != at {
				t.Errorf("%s behind %d events, with a hole at %d: %d counted, want %d; hole %d", name, i, at, n, 2*i+1, hole)
			}
			head = le.AppendUint64(head, 1<<63|7<<32|2)
		}
	}
}

// countSlowly says again, simply, what countEvents counts.
func countSlowly(b []byte) (n uint64) {
	for len(b) >= 8 {
		w := le.Uint64(b)
		b = b[8:]
		id := w >> 32 &^ (1 << 31)
		switch {
		case id == reservedBase+6:
			b = b[min(16, len(b)):]
		case id == reservedBase+5, id == reservedBase+7, id > reservedBase+8:
		case id >= reservedBase:
			b = b[min(8, len(b)):]
		case w&^(1<<63) != 0:
			n++
		}
	}
	return n
}

func TestSeal(t *testing.T) {
	b := make([]byte, chunkSize)
	if seal(b) != 0 {
		t.Error("an empty chunk is sealed")
	}
	le.PutUint32(b, chunkMagic)
	if n := seal(b); n != chunkHeader || le.Uint32(b[cSize:]) != chunkHeader {
		t.Errorf("%d", n)
	}
	le.PutUint32(b[cSize:], 0)
	b[chunkHeader+83] = 1
	if n := seal(b); n != chunkHeader+88 {
		t.Errorf("%d", n)
	}
	for _, size := range []uint32{1, chunkHeader - 8, chunkHeader + 4, chunkSize + 8} {
		le.PutUint32(b[cSize:], size)
		if n := seal(b); n != 0 {
			t.Errorf("size %d is accepted as %d", size, n)
		}
	}
}
