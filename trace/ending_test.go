package trace

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestEnding(t *testing.T) {
	running, ended := &Info{}, &Info{Duration: time.Second}
	for _, tt := range []struct {
		name         string
		head         Header
		info         *Info
		want, locked Ending
	}{
		{"closed", Header{Recorder: 1, Closed: true}, running, EndWritten, EndWritten},
		{"end in info.json only", Header{Recorder: 1}, ended, EndWritten, EndWritten},
		{"a program alone", Header{}, nil, EndWritten, EndWritten},
		{"killed", Header{Recorder: 1, Layout: LayoutPacked}, running, EndMissing, EndPending},
		{"killed before info.json", Header{Recorder: 1, Layout: LayoutPacked}, nil, EndMissing, EndPending},
		{"killed, profile", Header{}, running, EndMissing, EndPending},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.info != nil {
				if err := WriteInfo(dir, tt.info); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(dir, EventsFile)
			if err := os.WriteFile(path, AppendHeader(nil, tt.head), 0o666); err != nil {
				t.Fatal(err)
			}
			check := func(want Ending) {
				t.Helper()
				tr, err := Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				defer tr.Close()
				if tr.Ending != want || tr.Header.Closed != tt.head.Closed {
					t.Errorf("ending %d, closed %t; want %d, %t", tr.Ending, tr.Header.Closed, want, tt.head.Closed)
				}
			}
			check(tt.want)
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
				t.Skipf("no locks in %s: %v", dir, err)
			}
			check(tt.locked)
		})
	}
}
