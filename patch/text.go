package patch

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/symbol"
)

// WriteText writes the plan for people: what is added, then one line per edit.
func (p *Plan) WriteText(w io.Writer) error {
	edits, err := p.Edits()
	if err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "# image    %016x  build-id %s\n", p.ImageID, orNone(hex.EncodeToString(p.BuildID)))
	fmt.Fprintf(b, "# tracer   %s\n", p.Options.Tracer)
	fmt.Fprintf(b, "# entry    %#x -> %#x\n", p.OrigEntry, p.Entry)
	fmt.Fprintf(b, "# add      r-x %#x-%#x (%d bytes)\n", p.l.base, p.l.end(), len(p.l.rx))
	fmt.Fprintf(b, "# add      rw- %#x-%#x (%d bytes)\n", p.l.rw, p.l.rw+p.l.rwSize, p.l.rwSize)
	var left int
	for i := range p.Functions {
		if p.Functions[i].Action == Leave {
			left++
		}
	}
	fmt.Fprintf(b, "# trace    %d functions, %d other edits, %d functions left alone\n",
		p.Traced(), len(edits)-p.Traced(), left)
	for _, e := range edits {
		name := orNone(safetext.Line(symbol.Demangle(e.Func, symbol.Simple)))
		fmt.Fprintf(b, "%#x  %-20x -> %-20x  %-5s  %s\n", e.Addr, e.Old, e.New, e.Reason, name)
	}
	return b.Flush()
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

type planJSON struct {
	Image     string     `json:"image"`
	BuildID   string     `json:"build_id,omitempty"`
	Tracer    string     `json:"tracer"`
	Entry     string     `json:"entry"`
	NewEntry  string     `json:"new_entry"`
	RX        areaJSON   `json:"read_execute"`
	RW        areaJSON   `json:"read_write"`
	Functions []funcJSON `json:"functions"`
	Edits     []editJSON `json:"edits"`
}

type areaJSON struct {
	Addr string `json:"addr"`
	Size uint64 `json:"size"`
}

type funcJSON struct {
	Name   string `json:"name"`
	Addr   string `json:"addr"`
	Action string `json:"action"`
	ID     uint32 `json:"id,omitempty"`
	Site   string `json:"site,omitempty"`
	Kind   string `json:"kind,omitempty"`
	Thunk  string `json:"thunk,omitempty"`
	Moved  string `json:"moved,omitempty"`
	Reason string `json:"reason,omitempty"`
}

type editJSON struct {
	Addr   string `json:"addr"`
	Old    string `json:"old"`
	New    string `json:"new"`
	Func   string `json:"func,omitempty"`
	Reason string `json:"reason"`
}

func hexAddr(v uint64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%#x", v)
}

// MarshalJSON returns the plan as one JSON object; addresses and bytes are hexadecimal strings.
func (p *Plan) MarshalJSON() ([]byte, error) {
	edits, err := p.Edits()
	if err != nil {
		return nil, err
	}
	j := planJSON{
		Image: fmt.Sprintf("%016x", p.ImageID), BuildID: hex.EncodeToString(p.BuildID), Tracer: p.Options.Tracer.String(),
		Entry: hexAddr(p.OrigEntry), NewEntry: hexAddr(p.Entry),
		RX: areaJSON{hexAddr(p.l.base), uint64(len(p.l.rx))}, RW: areaJSON{hexAddr(p.l.rw), p.l.rwSize},
		Functions: make([]funcJSON, 0, len(p.Functions)), Edits: make([]editJSON, 0, len(edits)),
	}
	for i := range p.Functions {
		f := &p.Functions[i]
		fj := funcJSON{
			Name: f.Display(), Addr: hexAddr(f.Func), Action: f.Action.String(), ID: f.ID,
			Thunk: hexAddr(p.Thunk(f)), Reason: string(f.Reason),
		}
		if at, _ := p.Moved(f); at != 0 {
			fj.Moved = hexAddr(at)
		}
		if f.Len > 0 {
			fj.Site, fj.Kind = hexAddr(f.Site.Addr), f.Kind.String()
		}
		j.Functions = append(j.Functions, fj)
	}
	for _, e := range edits {
		old, new := hex.EncodeToString(e.Old), hex.EncodeToString(e.New)
		j.Edits = append(j.Edits, editJSON{hexAddr(e.Addr), old, new, e.Func, e.Reason})
	}
	return json.Marshal(j)
}
