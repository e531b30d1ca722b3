package spec

import (
	_ "embed"
	"fmt"
	"strings"
)

// page is docs/format.md but for the tables, which stand as {{name}}.
//
//go:embed page.md
var page string

// Markdown returns docs/format.md.
func Markdown() string {
	r := strings.NewReplacer(
		"{{dir}}", DefaultDir,
		"{{files}}", files(),
		"{{header}}", fields(Header),
		"{{policies}}", values(Policies, true),
		"{{states}}", values(States, true),
		"{{requeststates}}", values(RequestStates, true),
		"{{requests}}", values(Requests, true),
		"{{answers}}", values(Answers, true),
		"{{layouts}}", values(Layouts, true),
		"{{chunk}}", fields(Chunk),
		"{{kinds}}", values(Kinds, true),
		"{{records}}", records(),
		"{{dataflags}}", values(DataFlags, true),
		"{{ends}}", values(Ends, true),
		"{{stackmodes}}", values(StackModes, true),
		"{{triggers}}", values(Triggers, true),
		"{{image}}", values(ImageKeys, false),
		"{{profile}}", fields(Profile),
		"{{index}}", fields(Index),
		"{{indexhead}}", fields(IndexHead),
		"{{segment}}", fields(Segment),
		"{{segmentkinds}}", values(SegmentKinds, true),
		"{{blockflags}}", values(BlockFlags, true),
		"{{stateflags}}", values(StateFlags, true),
		"{{indexheader}}", fmt.Sprint(IndexHeader),
		"{{segmentsize}}", fmt.Sprint(SegmentSize),
		"{{range}}", fields(Range),
		"{{map}}", fields(Map),
		"{{switchedoff}}", fields(SwitchedOff),
		"{{switchedoffentry}}", fmt.Sprint(SwitchedOffEntry),
		"{{rangeentry}}", fmt.Sprint(RangeEntry),
		"{{sched}}", fields(Sched),
		"{{compressed}}", fields(Compressed),
		"{{compressedhead}}", fmt.Sprint(CompressedHead),
		"{{operations}}", values(Operations, true),
		"{{deltas}}", values(Deltas, true),
		"{{mostcolumns}}", fmt.Sprint(MostColumns),
		"{{mostplain}}", fmt.Sprint(MostPlain),
		"{{newid}}", hex(NewID),
		"{{schedentry}}", fmt.Sprint(SchedEntry),
		"{{schedstates}}", values(SchedStates, true),
		"{{mapentry}}", fmt.Sprint(MapEntry),
		"{{symkeys}}", values(SymKeys, false),
		"{{info}}", members(Info),
		"{{maxkind}}", fmt.Sprint(MaxKind),
		"{{idmax}}", hex(IDMax),
		"{{recordwords}}", fmt.Sprint(RecordWords),
		"{{states-off}}", fmt.Sprint(StatesOff),
		"{{chunkheader}}", fmt.Sprint(ChunkHeader),
		"{{profileentry}}", fmt.Sprint(ProfileEntry),
		"{{countentry}}", fmt.Sprint(CountEntry),
	)
	return "<!-- " + Generated + " -->\n\n" + r.Replace(page)
}

// cell makes s fit into a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

func fields(fs []Field) string {
	var b strings.Builder
	b.WriteString("| offset | type | name | unit | meaning |\n| ---: | --- | --- | --- | --- |\n")
	for _, f := range fs {
		fmt.Fprintf(&b, "| %d | %s | `%s` | %s | %s |\n", f.Off, f.Type, f.Name, f.Unit, cell(f.Doc))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func values(vs []Value, numbers bool) string {
	var b strings.Builder
	if numbers {
		b.WriteString("| value | name | meaning |\n| ---: | --- | --- |\n")
	} else {
		b.WriteString("| key | meaning |\n| --- | --- |\n")
	}
	for _, v := range vs {
		if numbers {
			fmt.Fprintf(&b, "| %d | `%s` | %s |\n", v.Val, v.Name, cell(v.Doc))
		} else {
			fmt.Fprintf(&b, "| `%s` | %s |\n", v.Name, cell(v.Doc))
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func records() string {
	var b strings.Builder
	b.WriteString("| type | name | payload | meaning |\n| ---: | --- | --- | --- |\n")
	for _, r := range Records {
		var payload []string
		for _, f := range r.Payload {
			p := fmt.Sprintf("%s `%s`", f.Type, f.Name)
			if f.Unit != "" {
				p += ", " + f.Unit
			}
			payload = append(payload, p+": "+f.Doc)
		}
		if payload == nil {
			payload = []string{"none"}
		}
		fmt.Fprintf(&b, "| %d | `%s` | %s | %s |\n", r.Type, r.Name, cell(strings.Join(payload, "; ")), cell(r.Doc))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func members(ms []Member) string {
	var b strings.Builder
	b.WriteString("| member | type | meaning |\n| --- | --- | --- |\n")
	for _, m := range ms {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.Name, m.Type, cell(m.Doc))
	}
	return strings.TrimSuffix(b.String(), "\n")
}
