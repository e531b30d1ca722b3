package format

import (
	"bytes"
	"testing"
)

func TestIndex(t *testing.T) {
	head := bytes.Repeat([]byte{7}, HeaderSize)
	id := IdentityOf(head)
	chunk := bytes.Repeat([]byte{9}, 200)
	e := AppendIndex([]byte("x"), id, chunk, 1<<40+8)[1:]
	if len(e) != ChunkHeader || !bytes.Equal(e[:XOffset], chunk[:XOffset]) {
		t.Fatalf("% x", e)
	}
	if off, ok := IndexOffset(id, e); off != 1<<40+8 || !ok {
		t.Errorf("offset %d, %v", off, ok)
	}
	for i := range e {
		b := bytes.Clone(e)
		b[i] ^= 1
		if _, ok := IndexOffset(id, b); ok {
			t.Errorf("a bit of byte %d is flipped, and nobody notices", i)
		}
	}
	head[HRealtime+7] ^= 0x80
	if _, ok := IndexOffset(IdentityOf(head), e); ok {
		t.Error("another trace's entry is taken")
	}
}
