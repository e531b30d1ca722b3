package e2e

import (
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
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

func TestLuaArm64(t *testing.T) {
	ks := arm64Kinds
	if !testtool.Wide() {
		ks = []kind{ks[0], ks[1]}
	}
	testLua(t, ks)
}

func TestSQLiteArm64(t *testing.T) {
	testtool.Long(t)
	statements := 3_000
	if testtool.Wide() {
		statements = 100_000
		testSQLite(t, "arm64-mcount", byRecord, statements)
		testSQLite(t, "arm64-clang", byPatching, statements)
	}
	testSQLite(t, "arm64-bti", byRecord, statements)
}

func TestZstdArm64(t *testing.T) {
	testtool.Long(t)
	if !testtool.Wide() {
		testZstd(t, "arm64-patchable")
		return
	}
	testZstd(t, "arm64-patchable", "arm64-mcount", "arm64-bti", "arm64-before", "arm64-clang")
}
