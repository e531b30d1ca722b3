package e2e

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestSoak traces fixtures for as long as is asked for, each time another one that is built and traced in another way, and
// checks each run as TestFixtures does.
func TestSoak(t *testing.T) {
	limit := testtool.Soak(t)
	needFentry(t)
	var all []*fixture
	for _, name := range fixtureNames(t) {
		if f := loadFixture(t, name); f.missing() == "" {
			all = append(all, f)
		}
	}
	runs := 0
	for end := time.Now().Add(limit); time.Now().Before(end) && !t.Failed(); {
		f := all[rand.IntN(len(all))]
		configs := slices.DeleteFunc(allConfigs(), func(c config) bool { return !f.supports(c) })
		if len(configs) == 0 {
			continue
		}
		c := configs[rand.IntN(len(configs))]
		ways := []way{byRecord, byPatching}
		if len(f.words("path")) == 0 {
			ways = append(ways, byCopy)
		}
		w := ways[rand.IntN(len(ways))]
		all := f.runs()
		args := all[rand.IntN(len(all))]
		t.Run(f.name+"/"+c.String()+"/"+strings.Join(append([]string{string(w)}, args...), " "), func(t *testing.T) {
			c.kind.target.need(t)
			p := build(t, f, c)
			checkRun(t, p, args, p.untraced(t, args), p.trace(t, w, args))
		})
		runs++
	}
	t.Logf("%d runs", runs)
}
