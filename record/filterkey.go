package record

import "strings"

// Key returns a text that differs between filters that choose differently. It is the same for the same patterns.
func (f *Filter) Key() string {
	if f == nil {
		return ""
	}
	var b strings.Builder
	for _, s := range []*ruleSet{&f.include, &f.exclude} {
		for i := range s.rules {
			b.WriteString(s.rules[i].text)
			b.WriteByte(0)
		}
		b.WriteByte(1)
	}
	return b.String()
}
