// Package pprof writes a trace as a profile for go tool pprof and what else reads its format: two sample types, calls and
// time in ns, for each call path. Functions have the place in the source where they begin, if there is debug
// information; images are mappings with their build ids. In a trace of several processes, samples have labels pid and
// comm. Stacks that were walked are samples of a third type, with functions that are not traced and inlined ones.
//
// The output is compressed with gzip, as the format asks for.
package pprof

import (
	"compress/gzip"
	"io"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/protobuf"
	"github.com/fentry-dev/fentry/trace"
)

// Numbers of fields, from proto/profile.proto in pprof's sources.
const (
	profileSampleType        = 1
	profileSample            = 2
	profileMapping           = 3
	profileLocation          = 4
	profileFunction          = 5
	profileString            = 6
	profileTimeNanos         = 9
	profileDurationNanos     = 10
	profileDefaultSampleType = 14

	valueTypeType = 1
	valueTypeUnit = 2

	sampleLocation = 1
	sampleValue    = 2
	sampleLabel    = 3

	labelKey    = 1
	labelString = 2
	labelNumber = 3

	mappingID           = 1
	mappingStart        = 2
	mappingLimit        = 3
	mappingFile         = 5
	mappingBuildID      = 6
	mappingHasFunctions = 7
	mappingHasFilenames = 8
	mappingHasLines     = 9
	mappingHasInlined   = 10

	locationID      = 1
	locationMapping = 2
	locationAddress = 3
	locationLine    = 4

	lineFunction = 1
	lineLine     = 2

	functionID         = 1
	functionName       = 2
	functionSystemName = 3
	functionFile       = 4
	functionStartLine  = 5
)

// Write writes the profile.
func Write(w io.Writer, s *export.Source) (sum export.Summary, err error) {
	roots, err := s.Roots()
	if err != nil {
		return sum, err
	}
	z := gzip.NewWriter(w)
	p := &writer{w: z, t: s.Trace, sum: &sum, strings: map[string]uint64{"": 0}, order: []string{""}}
	p.locations.Make = p.location
	p.images, p.frames = make([]image, len(s.Trace.Images)), map[frameKey]uint64{}
	if err := p.collect(s.Tasks, s.Walk); err != nil {
		return sum, err
	}
	p.values()
	for _, r := range roots {
		p.samples(r.Node, nil, p.labels(r.Task))
	}
	p.stackSamples()
	p.mappings()
	p.mappedFiles()
	p.times()
	for _, s := range p.order {
		p.write(protobuf.AppendString(nil, profileString, s))
	}
	if p.err == nil {
		p.err = z.Close()
	}
	return sum, p.err
}

type writer struct {
	w         io.Writer
	t         *trace.Trace
	sum       *export.Summary
	strings   map[string]uint64
	order     []string
	locations export.Cache[uint64]
	newest    uint64 // id of the newest location
	functions uint64 // and of the newest function
	images    []image
	untimed   bool
	stacks    []*stackSample
	frames    map[frameKey]uint64 // locations of what is not a traced function
	mapped    []*trace.MappedFile // where those are
	buf       []byte
	err       error
}

// image is what is known of a mapping: the addresses in it that occur, and whether there are lines.
type image struct {
	used      bool
	low, high uint64
	lines     bool
	noLines   bool // an attempt to read them failed
}

func (p *writer) write(b []byte) {
	if p.err == nil {
		_, p.err = p.w.Write(b)
	}
}

// values writes what the values of samples mean. Without a clock there are no times, and stacks only if some were
// walked.
func (p *writer) values() {
	value := func(name, unit string) {
		v := protobuf.AppendNumber(nil, valueTypeType, p.string(name))
		p.write(protobuf.AppendMessage(nil, profileSampleType, protobuf.AppendNumber(v, valueTypeUnit, p.string(unit))))
	}
	value("calls", "count")
	if p.untimed = p.t.Clockless(); !p.untimed {
		value("time", "nanoseconds")
		p.write(protobuf.AppendNumber(nil, profileDefaultSampleType, p.string("time")))
	}
	if len(p.stacks) > 0 {
		value("stacks", "count")
	}
}

// labels returns what samples of a task's process have in addition, nothing if there is only one process.
func (p *writer) labels(k *trace.Task) []byte {
	if k == nil {
		return nil
	}
	pid := protobuf.AppendNumber(nil, labelKey, p.string("pid"))
	pid = protobuf.AppendNumber(pid, labelNumber, uint64(k.PID))
	comm := protobuf.AppendNumber(nil, labelKey, p.string("comm"))
	comm = protobuf.AppendNumber(comm, labelString, p.string(k.Comm))
	return protobuf.AppendMessage(protobuf.AppendMessage(nil, sampleLabel, pid), sampleLabel, comm)
}

// samples writes the samples of a path and of those below it. path has the locations around it, outermost first.
func (p *writer) samples(n *trace.Node, path []uint64, labels []byte) {
	path = append(path, p.locations.Get(n.Func))
	p.sum.Count(n)
	if n.Calls > 0 || n.Self > 0 {
		var ids, values []byte
		for i := len(path) - 1; i >= 0; i-- {
			ids = protobuf.AppendVarint(ids, path[i])
		}
		values = protobuf.AppendVarint(values, n.Calls)
		if !p.untimed {
			values = protobuf.AppendVarint(values, uint64(n.Self))
		}
		if len(p.stacks) > 0 {
			values = protobuf.AppendVarint(values, 0)
		}
		sample := protobuf.AppendMessage(protobuf.AppendMessage(p.buf[:0], sampleLocation, ids), sampleValue, values)
		p.buf = append(sample, labels...)
		p.write(protobuf.AppendMessage(nil, profileSample, p.buf))
	}
	for _, c := range n.Children {
		p.samples(c, path, labels)
	}
}

// function writes a function and returns its id.
func (p *writer) function(name, system, file string, line int) uint64 {
	p.functions++
	f := protobuf.AppendNumber(protobuf.AppendNumber(nil, functionID, p.functions), functionName, p.string(name))
	f = protobuf.AppendNumber(f, functionSystemName, p.string(system))
	f = protobuf.AppendNumber(protobuf.AppendNumber(f, functionFile, p.string(file)), functionStartLine, uint64(line))
	p.write(protobuf.AppendMessage(nil, profileFunction, f))
	return p.functions
}

// location writes the location and the function of a function, and returns the location's id.
func (p *writer) location(id trace.FuncID) uint64 {
	fn, name := p.t.Func(id), p.t.Name(id)
	var file string
	var line int
	var addr, mapping uint64
	if int(id.Image) < len(p.images) {
		im := &p.images[id.Image]
		mapping, addr = uint64(id.Image)+1, fn.Addr+p.t.Images[id.Image].Bias
		if !im.used {
			im.used, im.low, im.high = true, addr, addr
		}
		im.low, im.high = min(im.low, addr), max(im.high, addr+fn.Size)
		if !im.noLines {
			var err error
			file, line, err = p.t.Source(id)
			im.noLines, im.lines = err != nil, im.lines || file != ""
		}
	}
	system := fn.Name
	if system == "" {
		system = name
	}
	function := p.function(name, system, file, line)
	p.newest++
	l := protobuf.AppendNumber(protobuf.AppendNumber(nil, locationID, p.newest), locationMapping, mapping)
	l = protobuf.AppendNumber(l, locationAddress, addr)
	l = protobuf.AppendMessage(l, locationLine,
		protobuf.AppendNumber(protobuf.AppendNumber(nil, lineFunction, function), lineLine, uint64(line)))
	p.write(protobuf.AppendMessage(nil, profileLocation, l))
	return p.newest
}

// mappings writes the images of which functions occur.
func (p *writer) mappings() {
	for i, im := range p.images {
		if !im.used {
			continue
		}
		of := &p.t.Images[i]
		m := protobuf.AppendNumber(protobuf.AppendNumber(nil, mappingID, uint64(i)+1), mappingStart, im.low)
		m = protobuf.AppendNumber(protobuf.AppendNumber(m, mappingLimit, im.high+1), mappingFile, p.string(of.Path))
		m = protobuf.AppendNumber(protobuf.AppendNumber(m, mappingBuildID, p.string(of.BuildID)), mappingHasFunctions, 1)
		if im.lines {
			m = protobuf.AppendNumber(protobuf.AppendNumber(m, mappingHasFilenames, 1), mappingHasLines, 1)
		}
		p.write(protobuf.AppendMessage(nil, profileMapping, m))
	}
}

func (p *writer) times() {
	if p.t.Clock.Realtime > 0 {
		p.write(protobuf.AppendNumber(nil, profileTimeNanos, uint64(p.t.Clock.Realtime)))
	}
	if p.t.Info != nil && p.t.Info.Duration > 0 {
		p.write(protobuf.AppendNumber(nil, profileDurationNanos, uint64(p.t.Info.Duration)))
	}
}

// string returns the number of a string in the table.
func (p *writer) string(s string) uint64 {
	n, ok := p.strings[s]
	if !ok {
		n = uint64(len(p.order))
		p.strings[s], p.order = n, append(p.order, s)
	}
	return n
}
