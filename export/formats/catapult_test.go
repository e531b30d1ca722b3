package formats

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testbrowser"
)

// The viewer behind chrome://tracing, catapult, is in the source of every Go, for go tool trace. It is loaded as that does.
const catapultPage = `<!doctype html><meta charset="utf-8">
<script src="webcomponents.min.js"></script>
<link rel="import" href="trace_viewer_full.html">`

// askCatapult has catapult's importer read a trace in a browser, and asks for the slices that it then shows.
func askCatapult(t *testing.T, file string) map[string]sums {
	static := filepath.Join(strings.TrimSpace(output(t, "go", "env", "GOROOT")), "src/internal/trace/traceviewer/static")
	if _, err := os.Stat(filepath.Join(static, "trace_viewer_full.html")); err != nil {
		t.Fatalf("%s does not have the viewer of go tool trace: %v", runtime.Version(), err)
	}
	b := testbrowser.New(t)
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(static)))
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, catapultPage) })
	mux.HandleFunc("/trace", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	s := httptest.NewServer(mux)
	defer s.Close()
	b.Open(s.URL)
	b.Wait("window.tr && tr.Model && tr.importer && tr.importer.Import && document.readyState === 'complete'")
	var read struct {
		Warnings []string
		Slices   []struct {
			Name     string
			Dur      float64 // ms
			Self     float64
			Unclosed bool
		}
	}
	b.Eval(`(async () => {
		const text = await (await fetch("trace")).text();
		const model = new tr.Model(), options = new tr.importer.ImportOptions();
		options.shiftWorldToZero = false;
		new tr.importer.Import(model, options).importTraces([text]);
		const slices = [];
		for (const thread of model.getAllThreads()) {
			for (const s of thread.sliceGroup.slices) {
				slices.push({ Name: s.title, Dur: s.duration, Self: s.selfTime, Unclosed: !!s.didNotFinish });
			}
		}
		return { Warnings: model.importWarnings.map((w) => w.message), Slices: slices };
	})()`, &read)
	if len(read.Warnings) > 0 {
		t.Errorf("it warns: %q", read.Warnings)
	}
	got := map[string]sums{}
	for _, c := range read.Slices {
		if c.Unclosed {
			t.Errorf("%s has no end", c.Name)
		}
		of := got[c.Name]
		got[c.Name] = sums{of.Calls + 1, of.Self + int64(c.Self*1e6+0.5)}
	}
	return got
}
