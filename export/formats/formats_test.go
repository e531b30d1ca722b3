package formats

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/sample"
	"github.com/fentry-dev/fentry/trace"
)

// sums is what an output says of a function.
type sums struct{ Calls, Self int64 }

// Each reader gets the calls and self times back from an output.
var readers = map[string]func(t *testing.T, out []byte) map[string]sums{
	"chrome": readChrome, "speedscope": readSpeedscope, "perfetto": readPerfetto, "pprof": readPprof,
	"folded": readFolded, "callgrind": readCallgrind, "csv": readCSV, "trace.dat": readTraceDat,
}

// TestAgree: what each format says of each function is what a report says.
func TestAgree(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tr := sample.Random(t, rng, 3000)
		want, calls := reported(t, tr)
		for _, f := range All {
			if f.WriteDir != nil {
				continue // TestClients
			}
			var out, again bytes.Buffer
			sum, err := f.Write(&out, export.From(tr))
			if err != nil {
				t.Fatal(f.Name, err)
			}
			if sum.Calls != calls || len(sum.Left) > 0 {
				t.Errorf("seed %d, %s: %d calls, left %v, want %d and none", seed, f.Name, sum.Calls, sum.Left, calls)
			}
			read := readers[f.Name]
			if read == nil {
				t.Fatalf("no reader of %s", f.Name)
			}
			got := read(t, out.Bytes())
			if f.Name == "folded" { // it has no counts
				for name, s := range got {
					got[name] = sums{want[name].Calls, s.Self}
				}
				for name, s := range want {
					if s.Self == 0 {
						got[name] = s
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("seed %d, %s (-report +%s):\n%s", seed, f.Name, f.Name, diff)
			}
			if _, err := f.Write(&again, export.From(tr)); err != nil || !bytes.Equal(out.Bytes(), again.Bytes()) {
				t.Errorf("seed %d, %s: written twice, differs: %v", seed, f.Name, err)
			}
		}
	}
}

// reported is what a report says, and the number of all calls.
func reported(t *testing.T, tr *trace.Trace) (map[string]sums, uint64) {
	t.Helper()
	rows, err := tr.Report(trace.ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, calls := map[string]sums{}, uint64(0)
	for _, r := range rows {
		want[r.Name] = sums{int64(r.Calls), r.Self}
		calls += r.Calls
	}
	return want, calls
}

// TestOf: file names say which format.
func TestOf(t *testing.T) {
	for file, want := range map[string]string{
		"t.json": "chrome", "a/t.speedscope.json": "speedscope", "x.speedscope": "speedscope", "t.pb.gz": "pprof",
		"cpu.pprof": "pprof", "callgrind.out.12": "callgrind", "a.callgrind": "callgrind", "t.pftrace": "perfetto",
		"t.csv": "csv", "t.folded": "folded", "t.txt": "", "json": "", ".json": "", "-": "", "csv/x": "",
	} {
		got := ""
		if f := Of(file); f != nil {
			got = f.Name
		}
		if got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}

// TestReadme: README.md lists the formats.
func TestReadme(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	want := "| format | ends in | what opens it |\n| --- | --- | --- |\n"
	for _, f := range All {
		want += fmt.Sprintf("| %s | %s | %s |\n", f.Name, f.Suffixes[0], f.Readers)
	}
	if !strings.Contains(string(page), want+"\n") {
		t.Errorf("README.md does not have\n%s", want)
	}
}

// A broken writer ends an export with its error.
func TestWriteError(t *testing.T) {
	tr := sample.Random(t, rand.New(rand.NewPCG(1, 1)), 9000)
	for _, f := range All {
		if f.WriteDir != nil {
			continue
		}
		if _, err := f.Write(new(brokenWriter), export.From(tr)); !errors.Is(err, errBroken) {
			t.Errorf("%s: error %v", f.Name, err)
		}
	}
}

type brokenWriter struct{}

var errBroken = errors.New("broken")

func (*brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

// A stack adds up self times of spans.
type stack struct {
	names  []string
	begins []int64
	inside []int64
}

func (s *stack) begin(name string, at int64) {
	s.names, s.begins, s.inside = append(s.names, name), append(s.begins, at), append(s.inside, 0)
}

func (s *stack) end(t *testing.T, at int64, into map[string]sums) {
	n := len(s.names) - 1
	if n < 0 || at < s.begins[n] {
		t.Fatalf("an end without a begin, or before it, at %d", at)
	}
	dur := at - s.begins[n]
	of := into[s.names[n]]
	into[s.names[n]] = sums{of.Calls + 1, of.Self + dur - s.inside[n]}
	s.names, s.begins, s.inside = s.names[:n], s.begins[:n], s.inside[:n]
	if n > 0 {
		s.inside[n-1] += dur
	}
}

func readChrome(t *testing.T, out []byte) map[string]sums {
	var file struct {
		TraceEvents []struct {
			Ph, Name string
			Tid      int
			Ts, Dur  json.Number
		}
	}
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatal(err)
	}
	ns := func(n json.Number) int64 {
		v, err := strconv.ParseInt(strings.Replace(string(n), ".", "", 1), 10, 64) // three decimals
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	got, rows := map[string]sums{}, map[int]*stack{}
	for _, ev := range file.TraceEvents {
		if rows[ev.Tid] == nil {
			rows[ev.Tid] = &stack{}
		}
		switch ev.Ph {
		case "B":
			rows[ev.Tid].begin(ev.Name, ns(ev.Ts))
		case "E":
			rows[ev.Tid].end(t, ns(ev.Ts), got)
		case "X":
			rows[ev.Tid].begin(ev.Name, ns(ev.Ts))
			rows[ev.Tid].end(t, ns(ev.Ts)+ns(ev.Dur), got)
		}
	}
	return got
}

func readSpeedscope(t *testing.T, out []byte) map[string]sums {
	var file struct {
		Shared   struct{ Frames []struct{ Name string } }
		Profiles []struct {
			StartValue, EndValue int64
			Events               []struct {
				Type  string
				Frame int
				At    int64
			}
		}
	}
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatal(err)
	}
	got := map[string]sums{}
	for _, p := range file.Profiles {
		var s stack
		for _, ev := range p.Events {
			if ev.At < p.StartValue || ev.At > p.EndValue {
				t.Fatalf("an event at %d, outside of %d to %d", ev.At, p.StartValue, p.EndValue)
			}
			if ev.Type == "O" {
				s.begin(file.Shared.Frames[ev.Frame].Name, ev.At)
			} else {
				s.end(t, ev.At, got)
			}
		}
		if len(s.names) > 0 {
			t.Fatal("calls that are not closed")
		}
	}
	return got
}

// fields calls f with the fields of a message of protocol buffers.
func fields(t *testing.T, b []byte, f func(field int, v uint64, bytes []byte)) {
	for len(b) > 0 {
		field, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		b = b[n:]
		switch typ {
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				t.Fatal(protowire.ParseError(n))
			}
			f(int(field), v, nil)
			b = b[n:]
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				t.Fatal(protowire.ParseError(n))
			}
			f(int(field), 0, v)
			b = b[n:]
		default:
			t.Fatalf("field %d has type %d", field, typ)
		}
	}
}

func readPerfetto(t *testing.T, out []byte) map[string]sums {
	got, rows, names := map[string]sums{}, map[uint64]*stack{}, map[uint64]string{}
	fields(t, out, func(_ int, _ uint64, packet []byte) {
		var at, typ, iid, track uint64
		fields(t, packet, func(field int, v uint64, b []byte) {
			switch field {
			case 8:
				at = v
			case 11:
				fields(t, b, func(field int, v uint64, b []byte) {
					switch field {
					case 9:
						typ = v
					case 10:
						iid = v
					case 11:
						track = v
					}
				})
			case 12:
				fields(t, b, func(_ int, _ uint64, b []byte) {
					var id uint64
					var name string
					fields(t, b, func(field int, v uint64, b []byte) {
						if field == 1 {
							id = v
						} else {
							name = string(b)
						}
					})
					names[id] = name
				})
			}
		})
		if rows[track] == nil {
			rows[track] = &stack{}
		}
		switch typ {
		case 1:
			rows[track].begin(names[iid], int64(at))
		case 2:
			rows[track].end(t, int64(at), got)
		}
	})
	return got
}

func readPprof(t *testing.T, out []byte) map[string]sums {
	z, err := gzip.NewReader(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var table []string
	functions := map[uint64]uint64{} // location, and function, to the name's number
	type one struct {
		leaf        uint64
		calls, self int64
	}
	var samples []one
	packed := func(b []byte) (vs []uint64) {
		for len(b) > 0 {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				t.Fatal(protowire.ParseError(n))
			}
			vs, b = append(vs, v), b[n:]
		}
		return vs
	}
	fields(t, raw, func(field int, _ uint64, b []byte) {
		switch field {
		case 2:
			var s one
			fields(t, b, func(field int, _ uint64, b []byte) {
				switch vs := packed(b); field {
				case 1:
					s.leaf = vs[0]
				case 2:
					s.calls, s.self = int64(vs[0]), int64(vs[1])
				}
			})
			samples = append(samples, s)
		case 5:
			var id, name uint64
			fields(t, b, func(field int, v uint64, _ []byte) {
				switch field {
				case 1:
					id = v
				case 2:
					name = v
				}
			})
			functions[id] = name
		case 6:
			table = append(table, string(b))
		}
	})
	got := map[string]sums{}
	for _, s := range samples {
		name := table[functions[s.leaf]]
		got[name] = sums{got[name].Calls + s.calls, got[name].Self + s.self}
	}
	return got
}

func readFolded(t *testing.T, out []byte) map[string]sums {
	got := map[string]sums{}
	for l := range strings.Lines(string(out)) {
		path, value, _ := strings.Cut(strings.TrimSpace(l), " ")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		name := path[strings.LastIndexByte(path, ';')+1:]
		got[name] = sums{0, got[name].Self + n}
	}
	return got
}

func readCallgrind(t *testing.T, out []byte) map[string]sums {
	got, names := map[string]sums{}, map[string]string{}
	var fn, callee string
	name := func(s string) string {
		number, text, full := strings.Cut(s, " ")
		if full {
			names[number] = text
		}
		return names[number]
	}
	call := false
	for l := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(l), "=")
		switch {
		case key == "fn":
			fn = name(value)
		case key == "cfn":
			callee = name(value)
		case key == "calls":
			n, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			got[callee] = sums{got[callee].Calls + n, got[callee].Self}
			call = true
		case key != "" && key[0] >= '0' && key[0] <= '9' && call:
			call = false
		case key != "" && key[0] >= '0' && key[0] <= '9':
			n, err := strconv.ParseInt(strings.Fields(key)[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			got[fn] = sums{got[fn].Calls, got[fn].Self + n}
		}
	}
	delete(got, "(start)")
	return got
}

func readCSV(t *testing.T, out []byte) map[string]sums {
	rows, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]sums{}
	for _, r := range rows[1:] {
		self, err := strconv.ParseInt(r[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		got[r[8]] = sums{got[r[8]].Calls + 1, got[r[8]].Self + self}
	}
	return got
}

// readTraceDat reads the pages behind the list of their places, whose beginning it searches.
func readTraceDat(t *testing.T, out []byte) map[string]sums {
	names := map[uint64]string{}
	kallsyms := out[bytes.Index(out, []byte("\n0000000000401"))+1:]
	if at := bytes.Index(out, []byte("0000000000401")); at >= 0 {
		kallsyms = out[at:]
	}
	for l := range strings.Lines(string(kallsyms)) {
		addr, name, ok := strings.Cut(l, " T ")
		a, err := strconv.ParseUint(addr, 16, 64)
		if !ok || err != nil {
			break
		}
		names[a] = strings.TrimSpace(name)
	}
	places := out[bytes.Index(out, []byte("flyrecord\x00"))+10:]
	first := binary.LittleEndian.Uint64(places)
	got := map[string]sums{}
	for i := 0; ; i++ {
		offset, size := binary.LittleEndian.Uint64(places[16*i:]), binary.LittleEndian.Uint64(places[16*i+8:])
		if size == 0 || len(out)-len(places)+16*i >= int(first) {
			break
		}
		var s stack
		for page := out[offset:][:size]; len(page) > 0; page = page[4096:] {
			at := binary.LittleEndian.Uint64(page)
			for b := page[16:][:binary.LittleEndian.Uint64(page[8:])]; len(b) > 0; {
				head := binary.LittleEndian.Uint32(b)
				b = b[4:]
				at += uint64(head >> 5)
				if head&31 == 30 {
					at += uint64(binary.LittleEndian.Uint32(b)) << 27
					b = b[4:]
					continue
				}
				ev := b[:head&31*4]
				b = b[len(ev):]
				switch name := names[binary.LittleEndian.Uint64(ev[8:])]; binary.LittleEndian.Uint16(ev) {
				case 11:
					s.begin(name, int64(at))
				case 10:
					if begin := int64(binary.LittleEndian.Uint64(ev[24:])); begin != s.begins[len(s.begins)-1] {
						t.Fatalf("%s began at %d, not at %d", name, s.begins[len(s.begins)-1], begin)
					}
					s.end(t, int64(at), got)
				}
			}
		}
	}
	return got
}
