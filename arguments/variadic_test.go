package arguments

import "testing"

// TestFormatted: what variadic functions are called with is shown as far as a format and captured words say it.
func TestFormatted(t *testing.T) {
	str := &Type{Kind: String, Size: 8}
	f := &Func{Name: "log", Params: []Param{{Name: "format", Type: str}}, Variadic: true}
	c, err := Plan(f, AMD64, Entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	words := []uint64{0x1000, 0xffffffff, 65, 0x2000, 1 << 40}
	for format, want := range map[string]string{
		"%d %c %s %ld":    `"%d %c %s %ld", -1, 'A', 0x2000, 1099511627776`,
		"%u%%%5.2x":       `"%u%%%5.2x", 4294967295, 0x41`,
		"%*d|%-.*lu":      `"%*d|%-.*lu", -1, 65, 8192, 1099511627776`,
		"%hhd %hd %p %zu": `"%hhd %hd %p %zu", -1, 65, 0x2000, 1099511627776`,
		"%f %i %m":        `"%f %i %m", <unknown>, -1`,
		"%d%d%d%d%d%d":    `"%d%d%d%d%d%d", -1, 65, 8192, 0, ...`,
		"%Lf":             `"%Lf", ...`,
		"%y":              `"%y", ...`,
		"%":               `"%", ...`,
		"100%%":           `"100%%", ...`,
		"text":            `"text", ...`,
		"":                `"", ...`,
	} {
		m := Memory{{Address: 0x1000, Bytes: []byte(format), Text: true}}
		if got := string(c.AppendArguments(nil, words, m)); got != want {
			t.Errorf("%q: %s, want %s", format, got, want)
		}
	}
	cut := Memory{{Address: 0x1000, Bytes: []byte("%d"), Text: true, Cut: true}}
	if got, want := string(c.AppendArguments(nil, words, cut)), `"%d"..., ...`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	f.Name = "sscanf"
	if c, err = Plan(f, AMD64, Entries, nil); err != nil {
		t.Fatal(err)
	}
	m := Memory{{Address: 0x1000, Bytes: []byte("%d"), Text: true}}
	if got, want := string(c.AppendArguments(nil, words, m)), `"%d", ...`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// FuzzFormatted: any format, and any words, are shown.
func FuzzFormatted(f *testing.F) {
	f.Add("%*.*hhd %s %", uint64(1))
	v := &Value{Type: &Type{Kind: Array}, Words: 4, More: true, Format: printfFormat}
	f.Fuzz(func(t *testing.T, format string, w uint64) {
		v.appendFormatted(nil, format, []uint64{w, w, w, w})
	})
}
