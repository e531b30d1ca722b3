package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// A way is one way to get a program traced.
type way string

const (
	byRecord   way = "record"    // fentry record: injected when the program starts
	byCopy     way = "no-ptrace" // fentry record --no-ptrace: a patched copy
	byPatching way = "patch"     // fentry patch -o, and the result run alone
)

// A traced run of a program.
type traced struct {
	*result
	dir   string           // the trace
	files []string         // programs patched on disk
	truth map[string]int64 // what the program counted in this very run
}

// untraced runs the program as it is.
func (p *program) untraced(t testing.TB, args []string) *result {
	t.Helper()
	r := run(t, command{dir: p.dir, argv: p.config.kind.command(append([]string{"./" + p.fixture.name}, args...)...),
		env: []string{"FIXTURE_COUNTS=" + p.counts()}, stdin: p.fixture.stdin()})
	if r.err != nil {
		t.Fatalf("untraced: %v\n%s%s", r.err, clip(r.stdout), clip(r.stderr))
	}
	p.show(t, p.dir, r)
	if err := os.Remove(p.counts()); err != nil {
		t.Fatalf("untraced run left no counters: %v", err)
	}
	return r
}

// counts is one path for all runs of a program, since a program may print its environment.
func (p *program) counts() string { return p.dir + ".counts" }

// show adds the files a fixture wants compared to its output.
func (p *program) show(t testing.TB, dir string, r *result) {
	t.Helper()
	for _, name := range p.fixture.words("show") {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			r.stdout += err.Error()
			continue
		}
		r.stdout += "== " + name + "\n" + string(b)
	}
}

// trace runs the program traced.
func (p *program) trace(t testing.TB, w way, args []string, options ...string) *traced {
	t.Helper()
	needFentry(t)
	data := filepath.Join(t.TempDir(), "data")
	env := []string{"FIXTURE_COUNTS=" + p.counts()}
	dir := p.dir
	var files []string
	k := p.config.kind
	argv := append([]string{"./" + p.fixture.name}, args...)
	switch w {
	case byRecord, byCopy:
		if len(p.fixture.words("companion")) > 0 {
			dir = filepath.Join(t.TempDir(), "with-companion")
			copyDir(t, p.dir, dir)
			for _, c := range p.fixture.words("companion") {
				c := k.executable(dir, c)
				patchFile(t, c, c+".new", options)
				if err := os.Rename(c+".new", c); err != nil {
					t.Fatal(err)
				}
				files = append(files, c)
			}
		}
		record := []string{fentry, "record", "--no-inherit", "-o", data} // others that they execute have no counters
		if w == byCopy {
			record = append(record, "--no-ptrace")
		}
		argv = append(append(append(record, k.recordOptions()...), options...), argv...)
	case byPatching:
		dir = filepath.Join(t.TempDir(), "patched")
		copyDir(t, p.dir, dir)
		in, out := []string{p.path()}, []string{filepath.Join(dir, p.fixture.name)}
		for _, name := range p.fixture.words("companion") {
			in, out = append(in, k.executable(p.dir, name)), append(out, k.executable(dir, name))
		}
		for i := range in {
			if err := os.Remove(out[i]); err != nil {
				t.Fatal(err)
			}
			patchFile(t, in[i], out[i], options)
		}
		files = append(files, out...)
		argv = k.command(argv...)
		env = append(env, "FENTRY_DATA="+data)
	}
	r := run(t, command{dir: dir, argv: argv, env: env, stdin: p.fixture.stdin()})
	p.show(t, dir, r)
	tr := &traced{result: r, dir: data, files: files}
	if _, err := os.Stat(p.counts()); err != nil {
		t.Fatalf("the traced program did not get as far as opening its counters: %s %v\n%s%s", r.status, r.err, clip(r.stdout), clip(r.stderr))
	}
	tr.truth = copyCounts(t, p.counts())
	if w != byPatching {
		if n := len(summary.FindAllString(r.stderr, -1)); n != 1 {
			t.Errorf("record printed %d summary lines\n%s", n, clip(r.stderr))
		}
	}
	return tr
}

var summary = regexp.MustCompile(`(?m)^\[ fentry: [0-9].* events.*\]$`)

func patchFile(t testing.TB, in, out string, options []string) {
	t.Helper()
	run(t, command{argv: append(append([]string{fentry, "patch", "-o", out}, options...), in)}).mustSucceed(t)
}

// TestFixtures traces every fixture in each way and compares with the untraced run and the program's own counters.
func TestFixtures(t *testing.T) {
	testFixtures(t, allConfigs(), func(p *program, most bool) []way {
		ways := []way{byRecord, byPatching}
		// A copy is at another path, which a program that looks at its own sees.
		if (most || testtool.Wide()) && len(p.fixture.words("path")) == 0 {
			ways = append(ways, byCopy)
		}
		return ways
	})
}

// testFixtures does it with some of the configurations; ways gets whether it is the most common one.
func testFixtures(t *testing.T, all []config, ways func(p *program, most bool) []way) {
	for i, name := range fixtureNames(t) {
		f := loadFixture(t, name)
		configs := choose(f, i, all)
		if len(configs) == 0 {
			continue // nothing the machine has
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if m := f.missing(); m != "" {
				t.Skip(m)
			}
			for k, c := range configs {
				t.Run(c.String(), func(t *testing.T) {
					t.Parallel()
					c.kind.target.need(t)
					p := build(t, f, c)
					for _, args := range f.runs() {
						want := p.untraced(t, args)
						for _, w := range ways(p, k == 0) {
							t.Run(strings.Join(append([]string{string(w)}, args...), " "), func(t *testing.T) {
								checkRun(t, p, args, want, p.trace(t, w, args))
							})
						}
					}
				})
			}
		})
	}
}

// mayLose says whether events may be lost in a run, if they are counted: emulated:ARG is for programs that write their trace themselves under
// an emulator.
func (p *program) mayLose(got *traced, args []string) bool {
	a := strings.Join(args, " ")
	words := p.fixture.words("may-lose")
	alone := len(got.files) > 0 && len(p.config.kind.target.emulator) > 0
	return slices.Contains(words, a) || alone && slices.Contains(words, "emulated:"+a)
}

func checkRun(t *testing.T, p *program, args []string, want *result, got *traced) {
	t.Helper()
	sameBehaviour(t, want, got.result)
	tr, err := decode(got.dir, got.files...)
	if err != nil {
		t.Fatalf("trace: %v", err)
	}
	equalCounts(t, p, got.truth, tr, p.mayLose(got, args))
	for _, comm := range p.fixture.words("comm") {
		if !tr.comms[comm] {
			t.Errorf("no thread named %s among %d names", comm, len(tr.comms))
		}
	}
}
