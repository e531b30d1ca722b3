package arguments

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
)

// TestFormatted: what variadic functions are called with is shown as far as a format and what was captured by it say.
func TestFormatted(t *testing.T) {
	str := &Type{Kind: String, Size: 8}
	f := &Func{Name: "log", Params: []Param{{Name: "level", Type: &Type{Kind: Int, Size: 4}}, {Name: "format", Type: str}}, Variadic: true}
	c, err := Plan(f, AMD64, Entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []Op{{OpGeneral, 0, 0}, {OpGeneral, 1, 0}, {OpFormat, 1, 2}}; !slices.Equal(c.Entry, want) {
		t.Errorf("%v, want %v", c.Entry, want)
	}
	float := math.Float64bits
	text := func(address uint64, s string) Region { return Region{Address: address, Bytes: []byte(s), Text: true} }
	for _, tt := range []struct {
		format     string
		values     []uint64
		memory     Memory
		want, json string
	}{
		{"%d %c %s %ld", []uint64{0xffffffff, 65, 0x2000, 1 << 40}, Memory{text(0x2000, "abc")}, `-1, 'A', "abc", 1099511627776`, `-1,"A","abc",1099511627776`},
		{"%u%%%5.2x", []uint64{0xffffffff, 65}, nil, `4294967295, 0x41`, `4294967295,"0x41"`},
		{"%*d|%-.*lu", []uint64{5, 0xffffffff, 3, 8192}, nil, `5, -1, 3, 8192`, `5,-1,3,8192`},
		{"%hhd %hd %p %zu %n", []uint64{0xffff, 0x10041, 0x2000, 1 << 40, 0x3000}, nil, `-1, 65, 0x2000, 1099511627776, 0x3000`, `-1,65,"0x2000",1099511627776,"0x3000"`},
		{"%f %i %m %g", []uint64{float(1.5), 0xffffffff, float(-2)}, nil, `1.5, -1, -2`, `1.5,-1,-2`},
		{"%d%d", []uint64{1}, nil, `1, ...`, `1`},
		{"%Lf %d", []uint64{0xa000000000000000, 0x4000, 7}, nil, `2.5, 7`, `2.5,7`},
		{"%.3s %.*s %.0s %.s", []uint64{0x2000, 4, 0x3000, 0x10, 0x10}, Memory{text(0x2000, "abc"), {Address: 0x3000, Bytes: []byte("defg"), Text: true, Cut: true}},
			`"abc", 4, "defg", "", ""`, `"abc",4,"defg","",""`},
		{"%.*s %s %s %s %ls", []uint64{0xffffffff, 0x2000, 0, 0x10, 0x5000, 0x6000}, Memory{text(0x2000, "abc"), {Address: 0x10, Text: true, Unreadable: true}},
			`-1, "abc", NULL, <0x10>, 0x5000, 0x6000`, `-1,"abc",null,"<0x10>","0x5000","0x6000"`},
		{"%s", []uint64{0x2000}, Memory{{Address: 0x2000, Bytes: []byte("abc"), Text: true, Cut: true}}, `"abc"...`, `"abc"`},
		{"%d %y", []uint64{1}, nil, `1, ...`, `1`},
		{"%1$d", nil, nil, `...`, ``},
		{"%", nil, nil, `...`, ``},
		{"100%%", nil, nil, ``, ``},
		{"", nil, nil, ``, ``},
	} {
		m := Memory{text(0x1000, tt.format)}
		if tt.values != nil {
			var b []byte
			for _, v := range tt.values {
				b = binary.LittleEndian.AppendUint64(b, v)
			}
			m = append(m, Region{Address: 0x1000, Bytes: b, Values: true})
		}
		m = append(m, tt.memory...)
		want := fmt.Sprintf("9, %q", tt.format)
		if tt.want != "" {
			want += ", " + tt.want
		}
		words := []uint64{9, 0x1000}
		if got := string(c.AppendArguments(nil, words, m)); got != want {
			t.Errorf("%q: %s, want %s", tt.format, got, want)
		}
		want = fmt.Sprintf(`{"level":9,"format":%q,"arg3":[%s]}`, tt.format, tt.json)
		if got := string(c.AppendObject(nil, words, m)); got != want {
			t.Errorf("%q: %s, want %s", tt.format, got, want)
		}
	}
	cut := Memory{{Address: 0x1000, Bytes: []byte("%d"), Text: true, Cut: true}}
	for name, tt := range map[string]struct {
		m    Memory
		want string
	}{
		"cut":        {append(cut, Region{Address: 0x1000, Bytes: make([]byte, 8), Values: true}), `9, "%d"..., 0, ...`},
		"unreadable": {Memory{{Address: 0x1000, Text: true, Unreadable: true}}, `9, <0x1000>, ...`},
		"nothing":    {nil, `9, <0x1000>, ...`},
	} {
		if got := string(c.AppendArguments(nil, []uint64{9, 0x1000}, tt.m)); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	f.Params[1].Name = "argument" // as execl has it
	if c, err = Plan(f, ARM64, Entries, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := string(c.AppendArguments(nil, []uint64{9, 0x1000}, Memory{text(0x1000, "ls")})), `9, "ls", ...`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	f.Name = "sscanf"
	if c, err = Plan(f, AMD64, Entries, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := string(c.AppendArguments(nil, []uint64{9, 0x1000, 1, 2, 3, 4}, Memory{text(0x1000, "%d")})), `9, "%d", ...`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// FuzzFormatted: any format, and any values, are shown.
func FuzzFormatted(f *testing.F) {
	f.Add("%*.*hhd %s %", []byte("0123456789abcdef"))
	f.Fuzz(func(t *testing.T, format string, values []byte) {
		v := formatted{text: format, values: values, longDouble: longDouble(AMD64)}
		v.appendText(nil)
		v.appendJSON(nil)
	})
}
