package stub

import (
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestAssign assigns callbacks between calls of functions that compilers know everything about.
func TestAssign(t *testing.T) {
	for _, cc := range []linkVariant{
		{cc: "gcc"}, {cc: "g++"}, {cc: "clang"}, {cc: "clang++"}, {cc: arm64GCC}, {cc: arm64GXX},
		{cc: "clang", flags: []string{clangARM64}}, {cc: "clang++", flags: []string{clangARM64}},
	} {
		for _, level := range []string{"-O0", "-O1", "-O2", "-O3", "-flto"} {
			v := linkVariant{cc: cc.cc, flags: append(slices.Clone(cc.flags), level)}
			t.Run(v.String(), func(t *testing.T) {
				t.Parallel()
				args := append(slices.Clone(v.flags), "-pg", "-Wall", "-Werror", "testdata/assign.c")
				if level == "-flto" {
					args = append(args, "-O2")
					if machineOf(v.cc, v.flags) == onAMD64 {
						args = append(args, "-mfentry")
					}
				}
				if strings.HasPrefix(v.cc, "clang") {
					testtool.Need(t, "ld.lld") // Debian's clang has no plugin for other linkers
					args = append(args, "-fuse-ld=lld", "-Wno-deprecated")
				}
				cmd := linkWith(t, v.cc, args...).command(t)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}
