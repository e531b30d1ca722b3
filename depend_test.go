package fentry_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// What each package of this module may import of the others beside its own internal ones; the order is that of the data.
// docs/design.md says why. A package that is not here is a failure: where it belongs is decided when it is made.
var mayImport = map[string][]string{
	"elfio/internal/raw": {},
	"elfio":              {"internal/bigslice"},
	"elfio/ar":           {"elfio", "elfio/internal/raw"},
	"elfio/ehframe":      {"elfio", "elfio/internal/raw", "internal/bigslice"},
	"elfio/object":       {"elfio", "elfio/internal/raw", "internal/bigslice"},
	"elfio/link":         {"elfio", "elfio/ehframe", "elfio/internal/raw"},
	"elfio/inject":       {"elfio", "elfio/internal/raw", "internal/bigslice", "internal/parallel"},
	"arch":               {"internal/format"},
	"arch/amd64":         {"arch"},
	"arch/arm64":         {"arch"},
	"symbol":             {"elfio", "elfio/ehframe", "internal/bigslice", "internal/mapped", "internal/parallel"},
	"names": {"elfio", "symbol", "record/golang", "internal/format", "internal/machine", "internal/mapped",
		"internal/sitetable"},
	"arguments": {"internal/format", "internal/safetext"},
	"record": {"elfio", "arch", "arch/amd64", "arch/arm64", "record/code", "record/golang", "record/moves", "record/plain", "symbol",
		"internal/bigslice", "internal/parallel"},
	"record/golang":  {"elfio", "arch/amd64", "arch/arm64", "arguments", "internal/parallel", "record/moves"},
	"record/moves":   {"arch/amd64"},
	"record/plain":   {"elfio", "elfio/ehframe", "arch/amd64", "arch/arm64", "record/code", "record/moves", "symbol", "internal/parallel"},
	"record/code":    {"elfio", "elfio/inject", "arch/amd64", "arch/arm64", "internal/parallel"},
	"record/objects": {"elfio", "elfio/object", "arch/amd64", "internal/bigslice"},
	"stub":           {"internal/format"},
	"patch": {"elfio", "elfio/ehframe", "elfio/inject", "elfio/link", "arch", "arch/amd64", "arch/arm64",
		"record", "record/code", "record/golang", "record/moves", "stub", "symbol", "internal/format", "internal/bigslice", "internal/parallel", "internal/sitetable", "internal/safetext"},
	"trace": {"arguments", "names", "internal/columns", "internal/format", "internal/atomicfile", "internal/parallel", "internal/safefile",
		"internal/safetext", "internal/syscalls"},
	"export/ftrace": {"trace", "internal/safetext", "internal/syscalls"},
	"export/ndjson": {"trace", "internal/safetext", "internal/syscalls"},

	"export":            {"arguments", "internal/safetext", "trace"},
	"export/callgrind":  {"export", "trace", "internal/safetext"},
	"export/chrome":     {"export", "trace", "internal/safetext"},
	"export/csv":        {"export", "trace", "internal/safetext"},
	"export/ctf":        {"export", "trace", "internal/safetext"},
	"export/folded":     {"export", "trace", "internal/safetext"},
	"export/parquet":    {"export", "trace", "internal/parquet", "internal/safetext"},
	"export/perfetto":   {"export", "trace", "internal/protobuf"},
	"export/pprof":      {"export", "trace", "internal/protobuf"},
	"export/speedscope": {"export", "trace", "internal/safetext"},
	"export/tracedat":   {"export", "trace", "internal/safetext"},
	"export/uftrace":    {"export", "trace", "internal/safetext"},
	"export/formats": {"export", "export/callgrind", "export/chrome", "export/csv", "export/ctf", "export/folded",
		"export/parquet", "export/perfetto", "export/pprof", "export/speedscope", "export/tracedat", "export/uftrace"},

	"view": {"export", "trace", "internal/mapped", "internal/parallel", "internal/safetext"},

	"session":                 {"trace", "internal/format", "internal/mapped", "internal/osthread", "internal/parallel", "internal/safefile", "arch", "patch"},
	"session/internal/clock":  {},
	"session/internal/limits": {},
	"session/internal/procfs": {},
	"session/internal/pool":   {"trace", "internal/format", "session/internal/clock", "session/internal/limits", "session/internal/procfs"},
	"session/internal/adapt":  {"internal/format", "session/internal/clock", "session/internal/pool"},
	"session/internal/drain": {"trace", "internal/columns", "internal/format", "session/internal/adapt", "session/internal/clock", "session/internal/pool",
		"session/internal/procfs"},
	"session/internal/tracedir": {"trace", "internal/format", "internal/atomicfile", "internal/safefile",
		"session/internal/procfs"},
	"session/internal/perf":     {"session/internal/procfs"},
	"session/internal/switches": {"trace", "internal/format", "session/internal/clock", "session/internal/perf", "session/internal/procfs"},
	"session/internal/samples": {"trace", "internal/format", "internal/mapped", "session/internal/clock", "session/internal/perf",
		"stacks", "symbol"},
	"session/internal/tracee": {"arch", "arch/amd64", "arch/arm64", "elfio", "internal/format", "internal/mapped", "internal/osthread", "internal/parallel",
		"internal/safefile", "patch", "stub", "session/internal/limits", "session/internal/procfs"},
	"session/internal/launch": {"arch", "patch", "internal/machine", "internal/mapped", "internal/places", "internal/safefile",
		"session/internal/tracee"},

	"tracefs": {"trace", "export/ftrace", "internal/fuse", "internal/safetext", "internal/syscalls"},

	"stacks": {"elfio", "elfio/ehframe", "arch/amd64", "symbol", "internal/mapped", "internal/osthread"},

	"fentry": {"arguments", "elfio", "internal/cache", "internal/machine", "internal/mapped", "internal/osthread", "internal/places",
		"internal/safefile", "internal/triggers", "names", "patch", "record", "session", "stub", "symbol", "trace"},
	"cmd/fentry": {"fentry", "arguments", "elfio", "elfio/ar", "export", "export/formats", "export/ftrace", "export/ndjson", "names",
		"patch", "record", "record/objects", "session", "stacks", "stub", "symbol", "trace", "tracefs", "view", "internal/atomicfile",
		"internal/heap", "internal/machine", "internal/mapped", "internal/osthread", "internal/parallel",
		"internal/safefile", "internal/safetext", "internal/syscalls", "internal/triggers"},
	"cmd/fentry/internal/mcount": {"internal/buildstep", "internal/safetext", "record/objects"},
	"cmd/fentry/internal/hot":    {"trace"},
	"cmd/fentry/internal/show":   {"trace"},

	"internal/atomicfile": {"internal/safefile"},
	"internal/bigslice":   {},
	"internal/buildstep":  {"elfio", "elfio/ar", "record/objects", "internal/atomicfile", "internal/safefile"},
	"internal/cache":      {"internal/safefile"},
	"internal/columns":    {"internal/format"},
	"internal/format":     {},
	"internal/fuse":       {},
	"internal/heap":       {},
	"internal/machine":    {},
	"internal/mapped":     {"internal/safefile"},
	"internal/memfile":    {},
	"internal/parallel":   {"internal/mapped"},
	"internal/parquet":    {},
	"internal/places":     {"internal/memfile"},
	"internal/protobuf":   {},
	"internal/osthread":   {},
	"internal/safefile":   {},
	"internal/safetext":   {},
	"internal/sitetable":  {"elfio", "elfio/inject"},
	"internal/syscalls":   {"internal/safetext"},
	"internal/triggers":   {},

	// Generators of sources and objects.
	"internal/spec":                       {},
	"internal/spec/gen":                   {"internal/spec"},
	"internal/syscalls/internal/mktables": {"internal/syscalls/internal/tables"},
	"internal/syscalls/internal/tables":   {},

	"stub/internal/build":    {},
	"stub/internal/mkobject": {"stub/internal/build", "internal/format", "internal/syscalls"},

	// Programs that show or measure, and all of it together.
	".ci/summary":            {},
	"bench":                  {"e2e/corpus", "export/formats", "session"},
	"e2e":                    {},
	"examples":               {},
	"examples/03-go-library": {"fentry", "patch", "record"},

	// For tests: no list above has them.
	"e2e/corpus":               {},
	"elfio/internal/elftest":   {"elfio/internal/raw", "internal/runfile", "internal/testtool"},
	"internal/cost":            {},
	"internal/debs":            {},
	"internal/runfile":         {},
	"internal/sample":          {"trace"},
	"internal/testbrowser":     {"internal/testtool"},
	"internal/testtool":        {},
	"session/internal/fixture": {"elfio", "arch", "patch", "record", "internal/runfile", "internal/testtool"},
}

func TestDependencies(t *testing.T) {
	const module = "github.com/fentry-dev/fentry"
	name := func(path string) (string, bool) {
		if path == module {
			return "fentry", true
		}
		return strings.CutPrefix(path, module+"/")
	}
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}:{{join .Imports " "}}`, "./...", "./.ci/summary").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		path, imports, _ := strings.Cut(strings.TrimSpace(line), ":")
		pkg, _ := name(path)
		may, ok := mayImport[pkg]
		if !ok {
			t.Errorf("package %s is not in the table of what packages may import: see docs/design.md", pkg)
			continue
		}
		seen[pkg] = true
		for imp := range strings.FieldsSeq(imports) {
			if imp == "C" {
				t.Errorf("%s uses cgo", pkg)
			}
			if dep, ours := name(imp); ours && !slices.Contains(may, dep) && !strings.HasPrefix(dep, pkg+"/internal/") {
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
