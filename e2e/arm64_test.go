package e2e

import (
	"testing"
)

// TestFixturesArm64 is TestFixtures for arm64 programs under qemu-user. fentry record cannot reach a guest with ptrace: what it runs is
// always a copy.
func TestFixturesArm64(t *testing.T) {
	testFixtures(t, configsOf(arm64Kinds), func(p *program, most bool) []way {
		ways := []way{byRecord, byPatching}
		if most && len(p.fixture.words("path")) == 0 {
			ways = append(ways, byCopy)
		}
		return ways
	})
}

// TestEmulatorLimits shows what qemu-user itself does not do for a program that nobody traces: what fixtures cannot be tried with under it, or
// lose events for, is this.
func TestEmulatorLimits(t *testing.T) {
	arm64.need(t)
	dir := t.TempDir()
	run(t, command{dir: dir, argv: append(arm64.compiler(t, "gcc"), "-O2", "-Wall", "-o", "limits", mustAbs(t, "testdata/emulator/limits.c"))}).mustSucceed(t)
	r := run(t, command{dir: dir, argv: append(append([]string(nil), arm64.emulator...), "./limits")}).mustSucceed(t)
	want := "" +
		"ptrace: Function not implemented\n" + // debugger
		"memory is mapped again: Cannot allocate memory\n" + // rlimits and privileges, patched
		"vfork shares memory: no\n" // vfork
	if r.stdout != want {
		t.Errorf("%q, want %q", r.stdout, want)
	}
}
