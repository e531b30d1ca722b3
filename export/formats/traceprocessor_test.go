package formats

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/sample"
)

// slicesQuery asks of each function how often it was called and what time it took itself, and for what went wrong.
const slicesQuery = `SELECT s.name, count(*), sum(s.dur) -
	sum(ifnull((SELECT sum(c.dur) FROM slice c WHERE c.parent_id = s.id), 0)) FROM slice s GROUP BY s.name;
`

const errorsQuery = `SELECT name, sum(value), 0 FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0 GROUP BY name;
`

// TestTraceProcessor: where Perfetto's own engine is installed, SQL tells of each function what a report tells.
func TestTraceProcessor(t *testing.T) {
	engine, err := exec.LookPath("trace_processor_shell")
	if err != nil {
		t.Skip("needs trace_processor_shell, which has to be downloaded from Perfetto's pages, or built")
	}
	tr := sample.Random(t, rand.New(rand.NewPCG(5, 5)), 4000)
	want, _ := reported(t, tr)
	file := exported(t, tr, "perfetto")
	row := regexp.MustCompile(`(?m)^"(\w+)",(\d+),(-?\d+)$`)
	ask := func(query string) map[string]sums {
		name := filepath.Join(t.TempDir(), "query.sql")
		if err := os.WriteFile(name, []byte(query), 0o666); err != nil {
			t.Fatal(err)
		}
		got := map[string]sums{}
		for _, m := range row.FindAllStringSubmatch(strings.ReplaceAll(output(t, engine, "-q", name, file), "\r", ""), -1) {
			calls, err := strconv.ParseInt(m[2], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			self, err := strconv.ParseInt(m[3], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			got[m[1]] = sums{calls, self}
		}
		return got
	}
	if diff := cmp.Diff(want, ask(slicesQuery)); diff != "" {
		t.Errorf("-report +trace_processor_shell:\n%s", diff)
	}
	if wrong := ask(errorsQuery); len(wrong) > 0 {
		t.Errorf("it complains: %v", wrong)
	}
}
