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

// String is the patterns as they were given, with a ! before those that exclude functions.
func (f *Filter) String() string {
	if f == nil {
		return ""
	}
	var all []string
	for i := range f.include.rules {
		all = append(all, f.include.rules[i].text)
	}
	for i := range f.exclude.rules {
		all = append(all, "!"+f.exclude.rules[i].text)
	}
	return strings.Join(all, " ")
}
