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

// Apart returns a filter with the same patterns, which knows for itself what they match.
func (f *Filter) Apart() *Filter {
	if f == nil {
		return nil
	}
	return &Filter{include: f.include.apart(), exclude: f.exclude.apart()}
}

func (s *ruleSet) apart() ruleSet {
	out := *s
	out.rules = make([]rule, len(s.rules))
	for i := range s.rules {
		r, to := &s.rules[i], &out.rules[i]
		to.text, to.negated, to.image, to.matcher = r.text, r.negated, r.image, r.matcher
	}
	return out
}

// Hits returns which of the patterns have matched a name so far: a bit for each, in their order, for [Filter.Hit].
func (f *Filter) Hits() []byte {
	if f == nil {
		return nil
	}
	hits := make([]byte, (len(f.include.rules)+len(f.exclude.rules)+7)/8)
	for i, r := range f.each {
		if r.hit.Load() {
			hits[i/8] |= 1 << (i % 8)
		}
	}
	return hits
}

// Hit notes that patterns have matched names, as Hits of a filter with the same Key has told.
func (f *Filter) Hit(hits []byte) {
	if f == nil {
		return
	}
	for i, r := range f.each {
		if i/8 < len(hits) && hits[i/8]>>(i%8)&1 != 0 {
			r.hit.Store(true)
		}
	}
}

// each yields all rules in their order.
func (f *Filter) each(yield func(int, *rule) bool) {
	n := 0
	for _, s := range []*ruleSet{&f.include, &f.exclude} {
		for i := range s.rules {
			if !yield(n, &s.rules[i]) {
				return
			}
			n++
		}
	}
}
