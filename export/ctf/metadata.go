package ctf

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/fentry-dev/fentry/internal/safetext"
)

// types is the part of the metadata that all traces have in common. Nothing is aligned to more than bytes, so the
// structures are as the writer appends them.
const types = `/* CTF 1.8 */

typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;

trace {
	major = 1;
	minor = 8;
	byte_order = le;
	packet.header := struct {
		uint32_t magic;
	};
};

env {
	tracer_name = "fentry";
};
`

// stream is what describes packets, and what is the same for all events.
const streams = `
typealias integer { size = 64; align = 8; signed = false; map = clock.trace.value; } := time_t;

stream {
	packet.context := struct {
		uint64_t content_size;
		uint64_t packet_size;
		time_t timestamp_begin;
		time_t timestamp_end;
		uint64_t events_discarded;
		uint32_t vpid;
		uint32_t vtid;
		uint64_t stack;
		string procname;
	};
	event.header := struct {
		uint8_t id;
		time_t timestamp;
	};
};
`

// writeMetadata writes the description of the streams, which has the functions that occur in them.
func (w *writer) writeMetadata() (err error) {
	f, err := w.dir.OpenFile("metadata", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	b := bufio.NewWriter(f)
	b.WriteString(types)
	fmt.Fprintf(b, "\nclock {\n\tname = trace;\n\tdescription = %q;\n\tfreq = 1000000000;\n\toffset = %d;\n};\n",
		w.clock(), max(w.t.Clock.Realtime, 0))
	b.WriteString(streams)
	if len(w.functions) > 0 {
		b.WriteString("\ntypealias enum : uint32_t {\n")
		for i, fn := range w.functions {
			fmt.Fprintf(b, "\t\"%s\" = %d,\n", quoted.Replace(safetext.Line(w.t.Name(fn))), i)
		}
		b.WriteString("} := function_t;\n")
		for _, id := range []byte{eventEntry, eventExit, eventOnly} {
			w.used[id] = true
		}
	}
	for id, ev := range events {
		if w.used[byte(id)] {
			fmt.Fprintf(b, "\nevent {\n\tname = \"%s\";\n\tid = %d;\n\tfields := struct {\n\t\t%s\n\t};\n};\n", ev.name, id,
				ev.fields)
		}
	}
	return b.Flush()
}

// events are the events by their numbers. Two can have the same name.
var events = []struct{ name, fields string }{
	eventEntry:      {"func_entry", "function_t func;"},
	eventExit:       {"func_exit", "function_t func;"},
	eventOnly:       {"func", "function_t func;"},
	eventMark:       {"mark", "string text;"},
	eventEntryArgs:  {"func_entry", "function_t func; string args;"},
	eventExitResult: {"func_exit", "function_t func; string result;"},
	eventNote:       {"note", "string text;"},
	eventBacktrace:  {"backtrace", "function_t func; uint32_t count; string frames[count]; string end;"},
}

// quoted is text inside of TSDL's double quotes.
var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// clock says what times are.
func (w *writer) clock() string {
	switch {
	case w.t.Clockless():
		return "numbers in the order of events: there was no clock"
	case w.t.Clock.Realtime == 0:
		return "nanoseconds since the trace's start"
	}
	return "nanoseconds since 1970"
}
