package trace

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/safefile"
)

// The file index, as it is read. Its segments are of tasks in any order; only their
// headers are read when a trace is opened. Of each task those count that are made of the
// chunks that it has. A recorder may have been stopped, or killed, before it had come to
// the end, and a file that programs write themselves may have grown.

// A segmentReader reads an index through a window.
type segmentReader struct {
	io.ReaderAt
	size int64
}

func (r segmentReader) read(b []byte, off int64) error {
	if off > r.size-int64(len(b)) {
		return fmt.Errorf("%s: offset %#x: %d bytes are not in the file of %d", IndexFile, off, len(b), r.size)
	}
	if n, err := r.ReadAt(b, off); n < len(b) {
		return fmt.Errorf("%s: offset %#x: %w", IndexFile, off, noEOF(err))
	}
	return nil
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// crc adds a chunk to a checksum of what an index is made of.
func (c *chunkRef) crc(crc uint32) uint32 {
	var b [24]byte
	le := binary.LittleEndian
	le.PutUint64(b[:], uint64(fileOffset(c.off)))
	le.PutUint64(b[8:], c.counter)
	le.PutUint32(b[16:], c.size)
	le.PutUint32(b[20:], c.number)
	return format.CRC(crc, b[:])
}

// unsealedCRC adds the contents of the task's chunks that may still grow.
func (t *Trace) unsealedCRC(k *Task, crc uint32) (uint32, error) {
	var buf []byte
	for _, c := range k.unsealed {
		end := c.off + int64(c.size)
		for off := t.nextData(c.off+ChunkHeaderSize, end); off < end; {
			if buf == nil {
				buf = make([]byte, windowSize)
			}
			n, err := t.file.ReadAt(buf[:min(int64(len(buf)), end-off)], off)
			if n == 0 && err != nil && err != io.EOF {
				return 0, err
			}
			if n == 0 {
				break
			}
			crc = format.CRC(crc, buf[:n])
			off = t.nextData(off+int64(n), end)
		}
	}
	return crc, nil
}

// indexHead returns the header of an index of the trace.
func indexHead(id format.Identity) []byte {
	le := binary.LittleEndian
	h := make([]byte, format.IndexHeader)
	copy(h[format.IMagic:], format.IndexMagic)
	le.PutUint32(h[format.IVersion:], format.IndexVersion)
	copy(h[format.IIdentity:], id[:])
	le.PutUint32(h[format.ICrc:], format.CRC(0, h[:format.ICrc]))
	return h
}

// head returns the segment's header.
func (s *segment) head(kind uint32, task taskKey, id format.Identity) []byte {
	le := binary.LittleEndian
	h := make([]byte, format.SegmentSize)
	le.PutUint32(h[format.GMagic:], format.SegmentMagic)
	le.PutUint32(h[format.GKind:], kind)
	le.PutUint32(h[format.GPID:], task.pid)
	le.PutUint32(h[format.GTID:], task.tid)
	le.PutUint64(h[format.GKey:], task.key)
	le.PutUint64(h[format.GFirst:], s.first)
	le.PutUint64(h[format.GLast:], s.last)
	le.PutUint32(h[format.GChunks:], s.chunks)
	le.PutUint32(h[format.GChunksCrc:], s.chunksCRC)
	le.PutUint32(h[format.GStates:], s.states)
	le.PutUint32(h[format.GFunctions:], s.functions)
	le.PutUint32(h[format.GStatesCrc:], s.statesCRC)
	le.PutUint32(h[format.GFunctionsCrc:], s.functionsCRC)
	le.PutUint32(h[format.GLists:], s.lists)
	le.PutUint32(h[format.GSums:], s.sums)
	le.PutUint32(h[format.GListsCrc:], s.listsCRC)
	le.PutUint32(h[format.GSumsCrc:], s.sumsCRC)
	le.PutUint32(h[format.GGists:], s.gists)
	le.PutUint32(h[format.GGistsCrc:], s.gistsCRC)
	if s.end {
		le.PutUint32(h[format.GEnd:], 1)
	}
	le.PutUint32(h[format.GCrc:], format.CRC(format.CRC(0, id[:]), h[:format.GCrc]))
	return h
}

// parseSegment reads the header of a segment at the given offset. ok is false if it is none.
func parseSegment(h []byte, off int64, id format.Identity) (s segment, kind uint32, task taskKey, ok bool) {
	le := binary.LittleEndian
	if le.Uint32(h[format.GMagic:]) != format.SegmentMagic ||
		le.Uint32(h[format.GCrc:]) != format.CRC(format.CRC(0, id[:]), h[:format.GCrc]) {
		return s, 0, task, false
	}
	s = segment{
		off: off + format.SegmentSize, first: le.Uint64(h[format.GFirst:]), last: le.Uint64(h[format.GLast:]),
		chunks: le.Uint32(h[format.GChunks:]), chunksCRC: le.Uint32(h[format.GChunksCrc:]),
		states: le.Uint32(h[format.GStates:]), functions: le.Uint32(h[format.GFunctions:]),
		statesCRC: le.Uint32(h[format.GStatesCrc:]), functionsCRC: le.Uint32(h[format.GFunctionsCrc:]),
		lists: le.Uint32(h[format.GLists:]), sums: le.Uint32(h[format.GSums:]),
		listsCRC: le.Uint32(h[format.GListsCrc:]), sumsCRC: le.Uint32(h[format.GSumsCrc:]),
		gists: le.Uint32(h[format.GGists:]), gistsCRC: le.Uint32(h[format.GGistsCrc:]), end: le.Uint32(h[format.GEnd:]) != 0,
	}
	task = taskKey{le.Uint32(h[format.GPID:]), le.Uint32(h[format.GTID:]), le.Uint64(h[format.GKey:])}
	return s, le.Uint32(h[format.GKind:]), task, true
}

func (s *segment) size() int64 { return format.SegmentSize + s.sections() }

// sections is the size of what follows the header.
func (s *segment) sections() int64 {
	return int64(s.states) + int64(s.functions) + int64(s.lists) + int64(s.sums) + int64(s.gists)
}

// headWindow is how much is read at a time to look for headers.
const headWindow = 16 << 10

// readBlocks reads which segments an index has. whole is true if they are of all the trace.
func (t *Trace) readBlocks(r io.ReaderAt, size int64) (x *blockIndex, whole bool, err error) {
	x = &blockIndex{r: segmentReader{r, size}, tasks: make([][]segment, len(t.Tasks)), long: make([][]longSegment, len(t.Tasks))}
	head := make([]byte, format.IndexHeader)
	if err := x.r.read(head, 0); err != nil {
		return nil, false, err
	}
	if string(head) != string(indexHead(t.identity)) {
		return nil, false, fmt.Errorf("%s: it is another trace's or another version's, or damaged", IndexFile)
	}
	tasks := make(map[taskKey]int32, len(t.Tasks))
	for _, k := range t.Tasks {
		tasks[k.taskKey()] = int32(k.Index)
	}
	var ranges []idRange
	var window []byte // of the file, from offset from on
	buf, from := make([]byte, headWindow), int64(0)
	for off := int64(format.IndexHeader); size-off >= format.SegmentSize; {
		if off-from > int64(len(window)-format.SegmentSize) || window == nil {
			from, window = off, buf[:min(int64(len(buf)), size-off)]
			if err := x.r.read(window, from); err != nil {
				return nil, false, err
			}
		}
		s, kind, task, ok := parseSegment(window[off-from:][:format.SegmentSize], off, t.identity)
		if !ok || s.size() > size-off {
			break
		}
		off += s.size()
		if i, there := tasks[task]; kind == format.SegmentBlocks && there {
			x.tasks[i] = append(x.tasks[i], s)
		} else if kind == format.SegmentPaths && there {
			x.long[i] = append(x.long[i], longSegment{s, len(x.tasks[i])})
		} else if kind == format.SegmentImages {
			if ranges, err = x.addImages(t, &s, ranges); err != nil {
				return nil, false, err
			}
		}
	}
	if len(ranges) == 0 && len(t.ranges) > 0 && len(x.images) > 0 {
		return nil, false, fmt.Errorf("%s: it was made without the trace's ranges of ids", IndexFile)
	}
	whole, err = x.fit(t)
	return x, whole, err
}

func (k *Task) taskKey() taskKey { return taskKey{uint32(k.PID), uint32(k.TID), k.Key} }

// indexedImage is the size of an image in a segment of them.
const indexedImage = 9

// addImages reads a segment of images, and adds its ranges.
func (x *blockIndex) addImages(t *Trace, s *segment, ranges []idRange) ([]idRange, error) {
	b, err := x.section(s.off, s.states, s.statesCRC)
	if err != nil {
		return nil, err
	}
	bad := fmt.Errorf("%s: offset %#x: images or ranges of ids that the trace does not have", IndexFile, s.off)
	there := map[ImageID]uint32{}
	for i := range t.Images {
		there[t.Images[i].ID] = uint32(i)
	}
	p := fields{b: b}
	for range p.count(indexedImage) {
		im := p.bytes(indexedImage)
		if im == nil {
			return nil, bad
		}
		i, ok := there[ImageID(binary.LittleEndian.Uint64(im))]
		if !ok || t.flat[i] != (im[8] == 1) {
			return nil, bad
		}
		x.images, x.listed = append(x.images, i), append(x.listed, im...)
	}
	have := map[idRange]bool{}
	for _, r := range t.ranges {
		have[r] = true
	}
	for range p.count(3) {
		first, n, image := p.uint(), p.uint(), p.uint()
		if image >= uint64(len(x.images)) || first+n > 1<<32 {
			return nil, bad
		}
		r := idRange{uint32(first), uint32(first + n - 1), x.images[image]}
		if !have[r] {
			return nil, bad
		}
		ranges = append(ranges, r)
	}
	if p.bad || len(p.b) != 0 {
		return nil, bad
	}
	return ranges, nil
}

// fit drops what is not of the chunks that the tasks have. whole is true if all of them have all of theirs.
func (x *blockIndex) fit(t *Trace) (whole bool, err error) {
	whole = true
	for _, k := range t.Tasks {
		crc, at, ended := uint32(0), 0, len(k.chunks) == 0
		ss := x.tasks[k.Index]
		n := 0
		for n < len(ss) && !ended && int64(ss[n].chunks) <= int64(len(k.chunks)-at) {
			s := &ss[n]
			for i := range s.chunks {
				crc = k.chunks[at+int(i)].crc(crc)
			}
			at += int(s.chunks)
			sum := crc
			if s.end {
				if sum, err = t.unsealedCRC(k, crc); err != nil {
					return false, err
				}
			}
			if sum != s.chunksCRC || s.end && at != len(k.chunks) {
				break
			}
			ended = s.end
			n++
		}
		x.tasks[k.Index] = ss[:n:n]
		x.long[k.Index] = slices.DeleteFunc(x.long[k.Index], func(s longSegment) bool { return s.behind > n })
		whole = whole && ended
	}
	return whole, nil
}

// openIndex uses the file index of the directory, if it is there.
func (t *Trace) openIndex(d *safefile.Dir) {
	f, err := d.Open(IndexFile)
	if missing(err) {
		return
	}
	if err == nil {
		var st os.FileInfo
		if st, err = f.Stat(); err == nil {
			var x *blockIndex
			var whole bool
			if x, whole, err = t.readBlocks(f, st.Size()); err == nil {
				x.close = f.Close
				if whole {
					t.blocks = x
				} else {
					t.part = x // only MakeIndex can do with it
				}
				return
			}
		}
		f.Close()
	}
	t.problem(fmt.Errorf("not used: %w", err))
}
