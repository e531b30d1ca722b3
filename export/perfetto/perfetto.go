// Package perfetto writes a trace as Perfetto does, in protocol buffers: what ui.perfetto.dev and trace_processor read.
//
// The output is a message perfetto.protos.Trace: a stream of packets. Processes, threads and other stacks that threads
// ran on are tracks; a call is the beginning and the end of a slice; names are interned, each written once. Arguments
// and results are annotations of slices; marks, signals, triggers and stacks that were walked are instants, the stacks
// with their functions as the event's callstack.
// Times are CLOCK_MONOTONIC, if the trace has it; else they count from its start.
package perfetto

import (
	"bufio"
	"io"
	"slices"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/protobuf"
	"github.com/fentry-dev/fentry/trace"
)

// Numbers of fields and values, from protos/perfetto/trace in Perfetto's sources: trace.proto, trace_packet.proto,
// interned_data/interned_data.proto and track_event/{track_event,track_descriptor,process_descriptor,
// thread_descriptor,debug_annotation}.proto.
const (
	tracePacket = 1

	packetTimestamp       = 8
	packetTrustedSequence = 10
	packetTrackEvent      = 11
	packetInternedData    = 12
	packetSequenceFlags   = 13
	packetTrackDescriptor = 60

	sequenceCleared = 1 // SEQ_INCREMENTAL_STATE_CLEARED
	sequenceNeeds   = 2 // SEQ_NEEDS_INCREMENTAL_STATE

	internedEventNames = 2
	eventNameIID       = 1
	eventNameName      = 2

	trackEventAnnotation = 4
	trackEventType       = 9
	trackEventNameIID    = 10
	trackEventTrack      = 11
	trackEventName       = 23

	trackEventCallstack = 55

	callstackFrames = 1
	frameFunction   = 1
	frameFile       = 2
	frameLine       = 3

	annotationText = 6
	annotationName = 10

	sliceBegin = 1
	sliceEnd   = 2
	instant    = 3

	trackUUID       = 1
	trackName       = 2
	trackProcess    = 3
	trackThread     = 4
	trackParentUUID = 5

	processPID     = 1
	processCmdline = 2
	processName    = 6

	threadPID  = 1
	threadTID  = 2
	threadName = 5
)

// sequence is the number of the only sequence of packets that there is.
const sequence = 1

// Write writes the trace.
func Write(w io.Writer, s *export.Source) (sum export.Summary, err error) {
	p := &writer{
		w: bufio.NewWriterSize(w, 64<<10), t: s.Trace, sum: &sum, base: s.Trace.Clock.Monotonic,
		processes: map[*trace.Process]uint64{}, threads: map[*trace.Task]uint64{},
		numbers: export.NewNumbers(s.Trace, true),
	}
	p.names.Make = func(trace.FuncID) uint64 { p.known++; return p.known }
	spans := &export.Spans{W: p, Sum: &sum, Values: true}
	if err := s.Walk(s.Tasks, spans.Event); err != nil {
		return sum, err
	}
	if err := spans.Close(); err != nil {
		return sum, err
	}
	return sum, p.w.Flush()
}

type writer struct {
	w     *bufio.Writer
	t     *trace.Trace
	sum   *export.Summary
	base  int64
	names export.Cache[uint64] // interning ids, from 1
	known uint64               // the newest of them
	// Tracks have numbers in the order in which they are written, from 1.
	tracks    []uint64 // by Track.Index
	processes map[*trace.Process]uint64
	threads   map[*trace.Task]uint64
	numbers   export.Numbers
	uuids     uint64
	begun     bool
	buf, msg  []byte
}

// Begin is that of export.SpanWriter.
func (p *writer) Begin(k *export.Track, at int64, fn trace.FuncID) error {
	track, err := p.track(k)
	if err != nil {
		return err
	}
	before := p.known
	iid := p.names.Get(fn)
	b := p.start(at)
	if p.known != before {
		name := protobuf.AppendNumber(nil, eventNameIID, iid)
		name = protobuf.AppendString(name, eventNameName, p.t.Name(fn))
		b = protobuf.AppendMessage(b, packetInternedData, protobuf.AppendMessage(nil, internedEventNames, name))
	}
	ev := protobuf.AppendNumber(p.msg[:0], trackEventType, sliceBegin)
	ev = protobuf.AppendNumber(ev, trackEventTrack, track)
	p.msg = p.values(protobuf.AppendNumber(ev, trackEventNameIID, iid), k.Event)
	return p.packet(protobuf.AppendMessage(b, packetTrackEvent, p.msg))
}

// End is that of export.SpanWriter.
func (p *writer) End(k *export.Track, at int64, _ trace.FuncID) error {
	track, err := p.track(k)
	if err != nil {
		return err
	}
	ev := protobuf.AppendNumber(p.msg[:0], trackEventType, sliceEnd)
	p.msg = p.values(protobuf.AppendNumber(ev, trackEventTrack, track), k.Event)
	return p.packet(protobuf.AppendMessage(p.start(at), packetTrackEvent, p.msg))
}

// values appends what was captured at an end of a call, as annotations.
func (p *writer) values(b []byte, ev *trace.Event) []byte {
	if ev == nil || !export.HasValues(ev) {
		return b
	}
	export.EachValue(p.t, ev, false, func(name string, value []byte) { b = annotate(b, name, string(value)) })
	return b
}

// annotate appends an annotation.
func annotate(b []byte, name, text string) []byte {
	a := protobuf.AppendString(nil, annotationName, name)
	return protobuf.AppendMessage(b, trackEventAnnotation, protobuf.AppendString(a, annotationText, text))
}

// backtrace appends the stack of an event, if it has one: outermost function first, as the format wants it. Readers of
// before 2025 do not know callstacks, and show the annotation.
func (p *writer) backtrace(b []byte, ev *trace.Event) []byte {
	frames, end := export.Backtrace(p.t, ev)
	if frames == nil {
		return b
	}
	var stack []byte
	for _, f := range slices.Backward(frames) {
		one := protobuf.AppendString(nil, frameFunction, f.Name)
		if f.File != "" {
			one = protobuf.AppendNumber(protobuf.AppendString(one, frameFile, f.File), frameLine, uint64(f.Line))
		}
		stack = protobuf.AppendMessage(stack, callstackFrames, one)
	}
	b = protobuf.AppendMessage(b, trackEventCallstack, stack)
	return annotate(b, "backtrace", export.BacktraceLine(frames, end))
}

// Note is that of export.SpanWriter.
func (p *writer) Note(k *export.Track, at int64, ev *trace.Event) error {
	name, ok := p.sum.Note(p.t, ev)
	if !ok {
		return nil
	}
	track, err := p.track(k)
	if err != nil {
		return err
	}
	msg := protobuf.AppendNumber(p.msg[:0], trackEventType, instant)
	msg = protobuf.AppendNumber(msg, trackEventTrack, track)
	p.msg = p.backtrace(protobuf.AppendString(msg, trackEventName, name), ev)
	return p.packet(protobuf.AppendMessage(p.start(at), packetTrackEvent, p.msg))
}

// start begins a packet of an event.
func (p *writer) start(at int64) []byte {
	b := protobuf.AppendNumber(p.buf[:0], packetTimestamp, uint64(p.base+at))
	b = protobuf.AppendNumber(b, packetTrustedSequence, sequence)
	if !p.begun {
		p.begun = true
		return protobuf.AppendNumber(b, packetSequenceFlags, sequenceCleared|sequenceNeeds)
	}
	return protobuf.AppendNumber(b, packetSequenceFlags, sequenceNeeds)
}

func (p *writer) packet(b []byte) error {
	p.buf = b
	var head [16]byte
	if _, err := p.w.Write(protobuf.AppendHead(head[:0], tracePacket, len(b))); err != nil {
		return err
	}
	_, err := p.w.Write(b)
	return err
}

// track returns the number of a track, and describes it if it is new.
func (p *writer) track(k *export.Track) (uint64, error) {
	for k.Index >= len(p.tracks) {
		p.tracks = append(p.tracks, 0)
	}
	uuid := &p.tracks[k.Index]
	if *uuid != 0 {
		return *uuid, nil
	}
	thread := p.threads[k.Task]
	if thread == 0 {
		process, err := p.process(k.Task)
		if err != nil {
			return 0, err
		}
		d := protobuf.AppendNumber(nil, threadPID, uint64(k.Task.PID))
		d = protobuf.AppendNumber(d, threadTID, uint64(p.numbers.Of(k.Task)))
		if thread, err = p.describe(protobuf.AppendMessage(nil, trackThread,
			protobuf.AppendString(d, threadName, p.numbers.Name(k.Task))), process); err != nil {
			return 0, err
		}
		p.threads[k.Task] = thread
	}
	if k.Main() {
		*uuid = thread
		return thread, nil
	}
	var err error
	*uuid, err = p.describe(protobuf.AppendString(nil, trackName, k.Name()), thread)
	return *uuid, err
}

func (p *writer) process(k *trace.Task) (uint64, error) {
	if uuid := p.processes[k.Process]; uuid != 0 {
		return uuid, nil
	}
	d := protobuf.AppendNumber(nil, processPID, uint64(k.PID))
	if k.Process != nil {
		args, title := k.Process.Command(k.Process.Start)
		if title {
			args = nil
		}
		for _, a := range args {
			d = protobuf.AppendString(d, processCmdline, a)
		}
	}
	uuid, err := p.describe(protobuf.AppendMessage(nil, trackProcess, protobuf.AppendString(d, processName, k.Comm)), 0)
	p.processes[k.Process] = uuid
	return uuid, err
}

// describe writes a track's packet: what it is, below which other one.
func (p *writer) describe(what []byte, parent uint64) (uint64, error) {
	p.uuids++
	d := protobuf.AppendNumber(nil, trackUUID, p.uuids)
	if parent != 0 {
		d = protobuf.AppendNumber(d, trackParentUUID, parent)
	}
	b := protobuf.AppendNumber(p.buf[:0], packetTrustedSequence, sequence)
	return p.uuids, p.packet(protobuf.AppendMessage(b, packetTrackDescriptor, append(d, what...)))
}
