package record

import (
	"bytes"
	"hash/crc32"
	"os"
	"reflect"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
)

// filledSyscall is a system call none of whose fields is zero.
func filledSyscall(t testing.TB, f *elfio.File) Syscall {
	t.Helper()
	at := f.Header.Entry
	s := Syscall{Addr: at, Func: at - 5, Name: "name", Number: 231, Moves: []Move{{at, 7, 5}, {at + 1, 6, 6}}, Reason: ReasonNoSite,
		Routine: 1 << 63, Cancelled: 1 << 31, Go: true}
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Fatalf("field %s: how is it kept?", v.Type().Field(i).Name)
		}
	}
	return s
}

// All of a system call is kept, whatever fields it has.
func TestKeptSyscallFields(t *testing.T) {
	f := self(t)
	s := filledSyscall(t, f)
	for _, want := range [][]Syscall{nil, {s, {Addr: s.Addr, Number: -1}, s}} {
		got, err := ReadSyscalls(f, AppendSyscalls(nil, want))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v\nwant %+v", got, err, want)
		}
	}
}

// System calls that are found, of a Go program too, and those that have been kept are the same.
func TestKeptSyscalls(t *testing.T) {
	seen := 0
	for _, path := range []string{"/proc/self/exe", "/usr/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6"} {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		f, err := elfio.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		want, err := Syscalls(f, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadSyscalls(f, AppendSyscalls(nil, want))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %d system calls, want %d: %v", path, len(got), len(want), err)
		}
		seen += len(want)
	}
	if seen == 0 {
		t.Error("no system calls")
	}
}

// What has been cut off or changed is refused, and so is what does not lie in the image.
func TestKeptSyscallsDamage(t *testing.T) {
	f := self(t)
	s := filledSyscall(t, f)
	good := AppendSyscalls(nil, []Syscall{s})
	for n := range good {
		if _, err := ReadSyscalls(f, good[:n]); err == nil {
			t.Errorf("%d of %d bytes are read", n, len(good))
		}
		bad := bytes.Clone(good)
		bad[n] ^= 4
		if _, err := ReadSyscalls(f, bad); err == nil {
			t.Errorf("read with byte %d changed", n)
		}
	}
	for _, far := range []Syscall{
		{Addr: 1 << 60}, {Addr: s.Addr, Moves: []Move{{1 << 60, 5, 5}}}, {Addr: s.Addr, Moves: []Move{{s.Addr, 5, 6}}},
	} {
		if _, err := ReadSyscalls(f, AppendSyscalls(nil, []Syscall{far})); err == nil {
			t.Errorf("read: %+v", far)
		}
	}
}

// FuzzReadSyscalls: bytes with a right checksum are refused, or are system calls that are kept again as they are.
func FuzzReadSyscalls(f *testing.F) {
	image := self(f)
	s := filledSyscall(f, image)
	seed := AppendSyscalls(nil, []Syscall{s, {Addr: s.Addr, Number: -1}})
	f.Add(seed[:len(seed)-crc32.Size])
	fuzzKept(f, image, ReadSyscalls, AppendSyscalls)
}
