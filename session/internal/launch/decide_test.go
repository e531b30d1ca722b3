//go:build linux

package launch

import (
	"errors"
	"testing"

	"github.com/fentry-dev/fentry/patch"
)

// Every row of the table, and each order in which rows could be confused.
func TestDecide(t *testing.T) {
	refused := errors.New("ptrace: operation not permitted")
	for _, tt := range []struct {
		name string
		facts
		want way
	}{
		{"nothing to do", facts{}, asItIs},
		{"nothing to do, emulated", facts{emulator: true}, asItIs},
		{"held", facts{planned: true}, inPlace},
		{"libraries only", facts{libraries: true}, inPlace},
		{"both", facts{planned: true, libraries: true}, inPlace},
		{"libraries only, refused", facts{libraries: true, hold: refused}, asItIs},
		{"another program", facts{others: true}, inPlace},
		{"another program, refused", facts{others: true, hold: refused}, asItIs},
		{"libraries only, emulated", facts{libraries: true, emulator: true, watched: true, hold: errEmulated}, underEmulator},
		{"libraries only, emulated, not wanted", facts{libraries: true, emulator: true, hold: errEmulated}, asItIs},
		{"emulated", facts{planned: true, emulator: true, hold: errEmulated}, underEmulator},
		{"not wanted", facts{planned: true, hold: errNotWanted}, asCopy},
		{"privileges", facts{planned: true, hold: errPrivileges}, asCopy},
		{"refused", facts{planned: true, libraries: true, hold: refused}, asCopy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := decide(tt.facts); got != tt.want {
				t.Errorf("way %d, want %d", got, tt.want)
			}
		})
	}
}

// What is known before a program is started, and that no more is asked than the table needs.
func TestAsk(t *testing.T) {
	memory := new(patch.Memory)
	for _, tt := range []struct {
		name string
		l    Launcher
		want error
	}{
		{"nothing to do", Launcher{NoPtrace: true, Emulator: []string{"emulator"}}, nil},
		{"held", Launcher{Path: "/bin/true", Memory: memory}, nil},
		{"a script", Launcher{Path: "/bin/true", Other: func(int) *patch.Memory { return nil }}, nil},
		{"not wanted", Launcher{Path: "/bin/true", Memory: memory, NoPtrace: true}, errNotWanted},
		{"emulated", Launcher{Path: "/bin/true", Memory: memory, NoPtrace: true, Emulator: []string{"emulator"}}, errEmulated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.l.ask()
			if f.hold != tt.want || f.planned != (tt.l.Memory != nil) || f.emulator != (tt.l.Emulator != nil) {
				t.Errorf("%+v, want the reason %v", f, tt.want)
			}
		})
	}
}
