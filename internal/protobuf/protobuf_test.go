package protobuf

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// What is appended is what protowire appends.
func TestAppend(t *testing.T) {
	for _, field := range []int{1, 15, 16, 60, 1 << 20} {
		f := protowire.Number(field)
		for _, v := range []uint64{0, 1, 127, 128, 1 << 35, math.MaxUint64} {
			want := protowire.AppendVarint(protowire.AppendTag([]byte("x"), f, protowire.VarintType), v)
			if got := AppendNumber([]byte("x"), field, v); !bytes.Equal(got, want) {
				t.Errorf("number %d in field %d: % x, want % x", v, field, got, want)
			}
		}
		for _, s := range []string{"", "main", strings.Repeat("é", 100)} {
			want := protowire.AppendString(protowire.AppendTag([]byte("x"), f, protowire.BytesType), s)
			if got := AppendString([]byte("x"), field, s); !bytes.Equal(got, want) {
				t.Errorf("string %q in field %d: % x, want % x", s, field, got, want)
			}
			if got := AppendMessage([]byte("x"), field, []byte(s)); !bytes.Equal(got, want) {
				t.Errorf("message %q in field %d: % x, want % x", s, field, got, want)
			}
		}
	}
	if got := AppendString(nil, 1, "a\xffb"); string(got) != "\n\x05a\ufffdb" {
		t.Errorf("a string that is not UTF-8: %q", got)
	}
}
