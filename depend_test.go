package fentry_test

import (
	"os/exec"
	"strings"
	"testing"
)

// What a package of this module may import of the others. docs/design.md says
// why; the order is that of the data.
var mayImport = map[string][]string{
	"elfio/internal/raw":  {},
	"elfio":               {"elfio/internal/raw", "internal/bigslice"},
	"elfio/ar":            {"elfio", "elfio/internal/raw"},
	"elfio/ehframe":       {"elfio", "elfio/internal/raw", "internal/bigslice"},
	"elfio/object":        {"elfio", "elfio/internal/raw", "internal/bigslice"},
	"elfio/link":          {"elfio", "elfio/ehframe", "elfio/internal/raw"},
	"elfio/inject":        {"elfio", "elfio/internal/raw", "internal/bigslice", "internal/parallel"},
	"arch":                {},
	"arch/amd64":          {"arch"},
	"arch/arm64":          {"arch"},
	"symbol":              {"elfio", "elfio/ehframe", "internal/bigslice", "internal/mapped"},
	"names":               {"elfio", "symbol", "internal/format", "internal/mapped", "internal/sitetable"},
	"record":              {"elfio", "arch", "arch/amd64", "arch/arm64", "symbol", "internal/bigslice", "internal/parallel"},
	"record/code":         {"elfio", "arch/amd64", "arch/arm64", "internal/parallel"},
	"record/objects":      {"elfio", "elfio/object", "arch/amd64", "internal/bigslice"},
	"stub":                {"internal/format"},
	"patch":               {"elfio", "elfio/ehframe", "elfio/inject", "elfio/link", "arch", "arch/amd64", "arch/arm64", "record", "record/code", "stub", "symbol", "internal/bigslice", "internal/parallel", "internal/sitetable"},
	"trace":               {"names", "internal/format", "internal/atomicfile"},
	"export/ftrace":       {"trace"},
	"export/ndjson":       {"trace"},
	"internal/sitetable":  {"elfio"},
	"internal/mapped":     {},
	"internal/atomicfile": {},
	"internal/bigslice":   {},
	"internal/format":     {},
	"internal/parallel":   {},

	"session":                   {"trace", "internal/format", "arch", "patch"},
	"session/internal/clock":    {},
	"session/internal/procfs":   {},
	"session/internal/pool":     {"trace", "internal/format", "session/internal/clock"},
	"session/internal/drain":    {"trace", "internal/format", "session/internal/pool", "session/internal/procfs"},
	"session/internal/tracedir": {"trace", "internal/format", "internal/atomicfile", "session/internal/procfs"},
	"session/internal/tracee":   {"arch", "patch", "session/internal/procfs"},
	"session/internal/launch":   {"arch", "patch", "session/internal/tracee"},
	"session/internal/fixture":  {"arch", "patch"},
}

func TestDependencies(t *testing.T) {
	const module = "github.com/fentry-dev/fentry/"
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}:{{join .Imports " "}}`, "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		path, imports, _ := strings.Cut(strings.TrimSpace(line), ":")
		pkg := strings.TrimPrefix(path, module)
		allowed, ok := mayImport[pkg]
		if !ok {
			continue
		}
		seen[pkg] = true
		may := map[string]bool{}
		for _, a := range allowed {
			may[a] = true
		}
		for _, imp := range strings.Fields(imports) {
			if imp == "C" {
				t.Errorf("%s uses cgo", pkg)
			}
			if dep, ours := strings.CutPrefix(imp, module); ours && !may[dep] && !strings.HasPrefix(dep, pkg+"/") {
				t.Errorf("%s imports %s", pkg, dep)
			}
		}
	}
	for pkg := range mayImport {
		if !seen[pkg] {
			t.Errorf("package %s is gone", pkg)
		}
	}
}
