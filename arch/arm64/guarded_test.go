package arm64

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestRunVeneers runs a thunk that is out of its function's reach, by veneers, in
// guarded memory.
func TestRunVeneers(t *testing.T) {
	cc := testtool.Path(t, gccTool)
	testtool.Need(t, "qemu-aarch64")
	exe := filepath.Join(t.TempDir(), "prog")
	args := []string{"-march=armv8.5-a", "-nostdlib", "-static", "-Wl,-z,force-bti", "-Wl,--no-warnings", "-Wl,--section-start=.far=0x20000000",
		"-Wl,--build-id=none", "-o", exe, "testdata/guarded.S"}
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %v: %v\n%s", args, err, out)
	}
	raw, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{t: t, raw: raw, f: f}
	syms := map[string]uint64{}
	all, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		syms[s.Name] = s.Value
	}
	put := func(b []byte, err error) func(uint64) {
		if err != nil {
			t.Fatal(err)
		}
		return func(addr uint64) { copy(h.at(addr), b) }
	}
	site := syms["f"] + 4
	for _, tt := range []struct {
		name     string
		landings bool
		cpu      string
		ok       bool
	}{
		{"landings", true, testtool.NewARM64, true},
		{"no landings", false, testtool.NewARM64, false},
		{"no landings, no guard", false, "cortex-a53", true},
	} {
		near := &Veneers{Addr: syms["island_near"], Size: 32}
		far := &Veneers{Addr: syms["island_far"], Size: 32}
		thunk, body := syms["thunks"], site+8
		toThunk, toBody := thunk, body
		if tt.landings {
			toThunk, toBody = syms["landing_far"], syms["landing_near"]
			put(AppendLanding(nil, toThunk, thunk))(toThunk)
			put(AppendLanding(nil, toBody, body))(toBody)
		}
		via, err := near.Route(site, toThunk)
		if err != nil || via == toThunk {
			t.Fatalf("the way to the thunk: %#x, %v", via, err)
		}
		put(AppendJump(nil, site, via))(site)
		viaBody, err := far.Route(syms["backs"], toBody)
		if err != nil || viaBody == toBody {
			t.Fatalf("the way to the body: %#x, %v", viaBody, err)
		}
		put(near.Append(nil))(near.Addr)
		put(far.Append(nil))(far.Addr)
		th := Thunk{Addr: thunk, Back: syms["backs"], Switch: syms["armed"], Enter: syms["graph_enter"], Exit: syms["thunk_exit"], Body: viaBody, ID: 1}
		if err := th.Encode(h.at(thunk)); err != nil {
			t.Fatal(err)
		}
		if err := th.EncodeBack(h.at(th.Back)); err != nil {
			t.Fatal(err)
		}
		cmd := h.command(tt.cpu)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); (code == 42) != tt.ok || len(out) == 0 != tt.ok {
			t.Errorf("%s: %v\n%s", tt.name, cmd.ProcessState, out)
		}
	}
}
