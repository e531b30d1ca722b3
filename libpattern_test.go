//go:build linux

package fentry

import "testing"

// A name is one library in all its versions, and no other whose name begins the same.
func TestLibraryPattern(t *testing.T) {
	for _, tt := range []struct {
		pattern, names string
		want           bool
	}{
		{"libz", "libz.so.1", true},
		{"libz", "/usr/lib/x86_64-linux-gnu/libz.so.1.2.13", true},
		{"libz", "/opt/libz.so", true},
		{"libz", "libzstd.so.1", false},
		{"libz", "libz", true},
		{"libz", "/usr/lib/libz/libx.so.1", false},
		{"libz.so", "libz.so.1.2.13", true},
		{"libz.so.1", "libz.so.1", true},
		{"libz.so.1", "libz.so.1.2.13", false},
		{"libz*", "libzstd.so.1", true},
		{"libssl*", "libssl.so.3", true},
		{"lib?", "libz.so.1", true},
		{"lib[ab]", "libb.so", true},
		{"*", "_ssl.cpython-311-x86_64-linux-gnu.so", true},
		{"libstdc++", "libstdc++.so.6.0.30", true},
		{"/usr/lib/*", "/usr/lib/libz.so.1", true},
		{"/usr/lib/*", "/usr/lib/x86_64-linux-gnu/libz.so.1", false},
		{"*/libz.so.1", "libz.so.1", false},
		{"*", "", false},
	} {
		p, err := parseLibraryPattern(tt.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.match(tt.names); got != tt.want {
			t.Errorf("%s, %s: %t", tt.pattern, tt.names, got)
		}
	}
	for _, bad := range []string{"", "lib[", `lib\`} {
		if _, err := parseLibraryPattern(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
