package main

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/trace"
)

// The function of an id is the one its call is in, wherever in the word the call begins.
func TestLinkedTable(t *testing.T) {
	tab := &linkedTable{base: 0x400000, funcs: []trace.Func{
		{Name: "even", Addr: 0x401000, Size: 9}, {Name: "odd", Addr: 0x401009, Size: 6}, {Name: "next", Addr: 0x40100f, Size: 16},
	}}
	for call, want := range map[uint64]string{0x401000: "even", 0x401001: "even", 0x401009: "odd", 0x40100f: "next", 0x401013: "next"} {
		id := uint32((call-tab.base)/4 + 1)
		if f, ok := tab.Func(id); !ok || f.Name != want {
			t.Errorf("call at %#x, id %d: %q, want %q", call, id, f.Name, want)
		}
	}
	for _, id := range []uint32{0, 1, 1<<31 - 1} {
		if f, ok := tab.Func(id); ok {
			t.Errorf("id %d is of %q", id, f.Name)
		}
	}
}

// A file that is no program, or another one, is refused and never a panic.
func TestReadLinkedRefuses(t *testing.T) {
	head := make([]byte, 64)
	copy(head, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint16(head[16:], uint16(elf.ET_EXEC))
	le.PutUint16(head[18:], uint16(elf.EM_X86_64))
	le.PutUint32(head[20:], 1)
	le.PutUint64(head[32:], 1<<63) // program headers, of which there are none
	le.PutUint16(head[52:], 64)
	le.PutUint16(head[54:], 56)
	for name, b := range map[string][]byte{"empty": nil, "text": []byte("#!/bin/sh\n"), "header": head, "cut": head[:40]} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readLinked(path, trace.Image{ID: 1}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
