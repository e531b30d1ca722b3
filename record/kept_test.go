package record

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"reflect"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/cost"
	"github.com/fentry-dev/fentry/record/moves"
)

// filled is a site each of whose fields has a value of its own.
func filled(t testing.TB, f *elfio.File) Site {
	t.Helper()
	var s Site
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		n := uint64(i + 1)
		switch x := v.Field(i); x.Kind() {
		case reflect.Uint64, reflect.Uint32, reflect.Uint8:
			x.SetUint(n)
		case reflect.Int:
			x.SetInt(int64(n))
		case reflect.Bool:
			x.SetBool(true)
		case reflect.String:
			x.SetString(v.Type().Field(i).Name)
		default:
			switch p := x.Addr().Interface().(type) {
			case **moves.Moves:
				at := f.Header.Entry
				*p = &moves.Moves{
					Runs: []moves.Run{
						{Addr: at, Len: 7, Room: 9, Via: at - 100, Outside: true, Events: []moves.Event{{At: 3}, {At: 7, Exit: true}}},
						{Addr: at + 20, Len: 1, Room: 2},
					},
					Branches: []moves.Branch{{Addr: at + 9, Len: 2, To: at + 4, Via: at + 30}, {Addr: at + 15, Len: 6, To: at}},
				}
			case *[]string:
				*p = []string{"b", "", "c"}
			case *[]uint64:
				*p = []uint64{9, 7, 1 << 63}
			case *[]byte:
				s.Addr = f.Header.Entry
				b, err := f.Bytes(s.Addr, s.Len)
				if err != nil {
					t.Fatal(err)
				}
				*p = b
			default:
				t.Fatalf("field %s: how is it kept?", v.Type().Field(i).Name)
			}
		}
	}
	return s
}

// self is the test's own program.
func self(t testing.TB) *elfio.File {
	t.Helper()
	return open(t, "/proc/self/exe")
}

// All of a site is kept, whatever fields it has.
func TestKeptFields(t *testing.T) {
	f := self(t)
	s := filled(t, f)
	want := []Site{s, {}, s, {Func: 1 << 63, Addr: 1}}
	got, err := ReadSites(f, AppendSites(nil, want))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
}

// Sites that are found and those that have been kept are the same.
func TestKeptSites(t *testing.T) {
	seen := 0
	for _, path := range []string{"/usr/bin/git", "/usr/bin/bash", "/usr/bin/perl"} {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		f, err := elfio.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		want, err := Find(f, Options{LibraryCalls: true})
		if err != nil {
			t.Fatal(err)
		}
		kept := AppendSites(nil, want)
		got, err := ReadSites(f, kept)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%s: %d sites, want %d: %v", path, len(got), len(want), err)
		}
		for i := range want {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("%s: %+v, want %+v", path, got[i], want[i])
			}
		}
		if len(kept) > 64*len(want) {
			t.Errorf("%s: %d bytes for %d sites", path, len(kept), len(want))
		}
		seen++
	}
	if seen == 0 {
		t.Skip("none of the programs is installed")
	}
}

// What has been cut off or changed is refused.
func TestKeptDamage(t *testing.T) {
	f := self(t)
	good := AppendSites(nil, []Site{filled(t, f)})
	for n := range good {
		if _, err := ReadSites(f, good[:n]); err == nil {
			t.Errorf("%d of %d bytes are read", n, len(good))
		}
		bad := bytes.Clone(good)
		bad[n] ^= 4
		if _, err := ReadSites(f, bad); err == nil {
			t.Errorf("read with byte %d changed", n)
		}
	}
	far := []Site{{Func: 1, Addr: 1 << 60, Len: 5}}
	if _, err := ReadSites(f, AppendSites(nil, far)); err == nil {
		t.Error("a site outside the image is read")
	}
}

// FuzzReadSites: bytes with a right checksum are refused, or are sites that are kept again as they are.
func FuzzReadSites(f *testing.F) {
	image := self(f)
	seed := AppendSites(nil, []Site{filled(f, image), {}})
	f.Add(seed[:len(seed)-crc32.Size])
	f.Add(append([]byte{2, 0}, bytes.Repeat([]byte("0"), 49)...)) // a name of as many bytes as there are with its length
	fuzzKept(f, image, ReadSites, AppendSites)
}

// fuzzKept reads bytes with a right checksum, which are refused, or are what is kept again as it is.
func fuzzKept[T any](f *testing.F, image *elfio.File, read func(*elfio.File, []byte) ([]T, error), add func([]byte, []T) []byte) {
	f.Fuzz(func(t *testing.T, b []byte) {
		b = binary.LittleEndian.AppendUint32(bytes.Clone(b), checksum(b))
		var kept []T
		var err error
		cost.Check(t, len(b), 64, func() { kept, err = read(image, b) })
		if err != nil {
			return
		}
		again, err := read(image, add(nil, kept))
		if err != nil || !reflect.DeepEqual(again, kept) {
			t.Errorf("%+v, %v\nwant %+v", again, err, kept)
		}
	})
}
