package record

import (
	"bytes"
	"strings"
	"testing"
)

const leftOutText = `image - /opt/without
0x10 a b
image 0aff /bin/x
0x401000 func_401000
0x401080 std::operator<<(int, char)
`

// TestLeftOut: a list is what its text says, for the image that it says.
func TestLeftOut(t *testing.T) {
	l, err := ReadLeftOut(strings.NewReader("# made by hand\n\n" + leftOutText))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		buildID, path string
		addr          uint64
		want          bool
	}{
		{"0aff", "/bin/x", 0x401000, true},
		{"0aff", "/moved/x", 0x401080, true},
		{"0aff", "/bin/x", 0x401001, false},
		{"0afe", "/bin/x", 0x401000, false},
		{"", "/bin/x", 0x401000, false},
		{"", "/opt/without", 0x10, true},
		{"", "/opt/other", 0x10, false},
	} {
		if have := l.Has(tt.buildID, tt.path, tt.addr); have != tt.want {
			t.Errorf("%+v: %v", tt, have)
		}
	}
	if !l.Image("0aff", "") || l.Image("", "/bin/x") || (*LeftOut)(nil).Image("", "") {
		t.Error("images are wrong")
	}
	if l.Key() != leftOutText || (*LeftOut)(nil).Key() != "" {
		t.Errorf("written as %q", l.Key())
	}
	for text, want := range map[string]string{
		"":                         "lists no functions",
		"0x10 f\n":                 "line 1: a function in front of",
		"image\n":                  "line 1: an image needs",
		"image 12 /x\n0x40\tf\n":   `line 2: "0x40\tf" is no address`,
		"image - \n":               "line 1: an image needs",
		"image 12G4 /x\n":          "line 1: an image needs",
		"image 12 /x\n\nmain\n":    `line 3: "main" is no address`,
		"image 12 /x\n4000 main\n": `line 2: "4000" is no address`,
	} {
		if _, err := ReadLeftOut(strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// FuzzLeftOut: what is read and written is read as the same.
func FuzzLeftOut(f *testing.F) {
	f.Add([]byte(leftOutText), "/bin/\x1b\n x ", uint64(7))
	f.Fuzz(func(t *testing.T, text []byte, name string, addr uint64) {
		l, err := ReadLeftOut(bytes.NewReader(text))
		if err != nil {
			l = new(LeftOut)
		}
		l.Add("77", name, addr, name)
		once := l.Key()
		again, err := ReadLeftOut(strings.NewReader(once))
		if err != nil || again.Key() != once || !again.Has("77", name, addr) {
			t.Errorf("%q is read as %v, %v", once, again, err)
		}
	})
}
