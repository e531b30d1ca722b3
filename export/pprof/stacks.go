package pprof

import (
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/fentry-dev/fentry/internal/protobuf"
	"github.com/fentry-dev/fentry/trace"
)

// Stacks that were walked (record --stack) are samples of a third type, stacks/count, with 0 calls and no time: the whole
// stack, with functions that are not traced, and inlined ones, which are lines of the location of the function that has
// their code. pprof -sample_index=stacks shows them. The paths of traced calls have no inlined functions: what is known of
// them is which function was called, not from which instruction.

// maxStacks bounds the different stacks that are kept.
const maxStacks = 1 << 20

// A stackSample is a stack with how often it was seen.
type stackSample struct {
	count  uint64
	fn     trace.FuncID // at whose calls
	frames []trace.StackFrame
	task   *trace.Task // one of the process whose stack it is
}

// A frameKey is a place in a file that was mapped.
type frameKey struct {
	file  *trace.MappedFile
	pc    uint64
	exact bool
}

// collect reads the stacks of the trace, if it may have any.
func (p *writer) collect(tasks []*trace.Task, walk func([]*trace.Task, func(*trace.Event) error) error) error {
	if !p.t.MayHaveStacks() {
		return nil
	}
	known := map[string]*stackSample{}
	files := map[trace.MappedFile]*trace.MappedFile{} // each chunk says anew what is mapped
	err := walk(tasks, func(ev *trace.Event) error {
		if ev.Kind != trace.Stacktrace || ev.Backtrace == nil {
			return nil
		}
		process := -1
		if ev.Task.Process != nil {
			process = ev.Task.Process.Index
		}
		key := binary.AppendVarint(nil, int64(process))
		key = binary.AppendUvarint(binary.AppendUvarint(key, uint64(ev.Func.Image)), uint64(ev.Func.ID))
		for _, f := range ev.Backtrace.Frames {
			key = binary.AppendUvarint(binary.AppendUvarint(key, f.PC), uint64(f.Func.Image)<<32|uint64(f.Func.ID))
			key = strconv.AppendBool(key, f.Exact)
		}
		s := known[string(key)]
		if s == nil {
			if len(known) == maxStacks {
				p.sum.Leave("backtraces", 1)
				return nil
			}
			s = &stackSample{fn: ev.Func, frames: slices.Clone(ev.Backtrace.Frames), task: ev.Task}
			for i := range s.frames {
				s.frames[i].File = same(files, s.frames[i].File)
			}
			known[string(key)] = s
			p.stacks = append(p.stacks, s)
		}
		s.count++
		return nil
	})
	return err
}

// same returns the first file that is like one.
func same(files map[trace.MappedFile]*trace.MappedFile, f *trace.MappedFile) *trace.MappedFile {
	if f == nil {
		return nil
	}
	if files[*f] == nil {
		files[*f] = f
	}
	return files[*f]
}

// stackSamples writes the samples of the stacks, in the order in which they were first seen.
func (p *writer) stackSamples() {
	for _, s := range p.stacks {
		var ids []byte
		if s.fn != (trace.FuncID{}) { // else a timer has asked
			ids = protobuf.AppendVarint(nil, p.locations.Get(s.fn))
		}
		for _, f := range s.frames {
			ids = protobuf.AppendVarint(ids, p.frame(f))
		}
		values := protobuf.AppendVarint(nil, 0)
		if !p.untimed {
			values = protobuf.AppendVarint(values, 0)
		}
		values = protobuf.AppendVarint(values, s.count)
		sample := protobuf.AppendMessage(protobuf.AppendMessage(nil, sampleLocation, ids), sampleValue, values)
		if len(p.t.Processes) > 1 {
			sample = append(sample, p.labels(s.task)...)
		}
		p.write(protobuf.AppendMessage(nil, profileSample, sample))
	}
}

// frame returns the location of a frame, and writes it if it is new.
func (p *writer) frame(f trace.StackFrame) uint64 {
	if f.Func != (trace.FuncID{}) {
		return p.locations.Get(f.Func)
	}
	key := frameKey{f.File, f.PC, f.Exact}
	if id := p.frames[key]; id != 0 {
		return id
	}
	var lines []byte
	for _, s := range p.t.SourceFrames(f) {
		fn := protobuf.AppendNumber(nil, lineFunction, p.function(s.Name, s.Name, s.File, 0))
		lines = protobuf.AppendMessage(lines, locationLine, protobuf.AppendNumber(fn, lineLine, uint64(s.Line)))
	}
	mapping := p.mappingOf(f)
	p.newest++
	l := protobuf.AppendNumber(protobuf.AppendNumber(nil, locationID, p.newest), locationMapping, mapping)
	l = append(protobuf.AppendNumber(l, locationAddress, f.PC), lines...)
	p.write(protobuf.AppendMessage(nil, profileLocation, l))
	p.frames[key] = p.newest
	return p.newest
}

// mappingOf returns the mapping that a frame is in, 0 if it is in none.
func (p *writer) mappingOf(f trace.StackFrame) uint64 {
	m := f.File
	if m == nil {
		return 0
	}
	at := slices.IndexFunc(p.mapped, func(k *trace.MappedFile) bool { return k == m })
	if at < 0 {
		at = len(p.mapped)
		p.mapped = append(p.mapped, m)
	}
	return uint64(len(p.images) + 1 + at)
}

// mappedFiles writes the mappings of the frames of stacks.
func (p *writer) mappedFiles() {
	for i, m := range p.mapped {
		b := protobuf.AppendNumber(protobuf.AppendNumber(nil, mappingID, uint64(len(p.images)+1+i)), mappingStart, m.Address)
		b = protobuf.AppendNumber(protobuf.AppendNumber(b, mappingLimit, m.Address+m.Size), mappingFile, p.string(m.Path))
		b = protobuf.AppendNumber(b, mappingBuildID, p.string(m.BuildID))
		for _, has := range []int{mappingHasFunctions, mappingHasFilenames, mappingHasLines, mappingHasInlined} {
			b = protobuf.AppendNumber(b, has, 1)
		}
		p.write(protobuf.AppendMessage(nil, profileMapping, b))
	}
}
