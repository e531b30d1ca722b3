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
		"{{header}}", fields(Header),
		"{{policies}}", values(Policies, true),
		"{{states}}", values(States, true),
		"{{layouts}}", values(Layouts, true),
		"{{chunk}}", fields(Chunk),
		"{{kinds}}", values(Kinds, true),
		"{{events}}", events(),
		"{{image}}", values(ImageKeys, false),
		"{{profile}}", fields(Profile),
		"{{symkeys}}", values(SymKeys, false),
		"{{info}}", members(Info),
		"{{reservedbase}}", fmt.Sprintf("0x%x", ReservedBase),
		"{{reservedlast}}", fmt.Sprintf("0x%x", ReservedBase+ReservedLen-1),
		"{{states-off}}", fmt.Sprint(StatesOff),
		"{{chunkheader}}", fmt.Sprint(ChunkHeader),
		"{{profileentry}}", fmt.Sprint(ProfileEntry),
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

func events() string {
	var b strings.Builder
	b.WriteString("| id | name | payload | meaning |\n| --- | --- | --- | --- |\n")
	for _, e := range Events {
		payload := "none"
		if len(e.Payload) > 0 {
			f := e.Payload[0]
			payload = fmt.Sprintf("%d word", payloadWords(e))
			if payloadWords(e) != 1 {
				payload += "s"
			}
			payload += fmt.Sprintf(": %s `%s`", f.Type, f.Name)
			if f.Unit != "" {
				payload += ", " + f.Unit
			}
			payload += ", " + f.Doc
		}
		fmt.Fprintf(&b, "| 0x%x | `%s` | %s | %s |\n", ReservedBase+e.Code, e.Name, cell(payload), cell(e.Doc))
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
