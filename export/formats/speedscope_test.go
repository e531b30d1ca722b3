package formats

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fentry-dev/fentry/internal/sample"
	"github.com/fentry-dev/fentry/internal/testbrowser"
	"github.com/fentry-dev/fentry/trace"
)

// speedscope's released files, as npm has them: what www.speedscope.app serves.
const (
	speedscopePackage = "speedscope@1.25.0"
	speedscopeSHA512  = "cpf9HWTZf1ijLXBJrk87Ve/54tnYx6rlf0gUThvn3ook6h63hLXVOQiMf44PT+XoV503cPfvfiT5gP5vojp6Ag=="
)

// speedscopeFiles returns the files of speedscope's page.
func speedscopeFiles(t *testing.T) fstest.MapFS {
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("needs npm, which has speedscope's files")
	}
	dir := t.TempDir()
	cmd := exec.Command(npm, "pack", "--prefer-offline", "--fetch-retries=0", "--fetch-timeout=30000",
		"--pack-destination", dir, speedscopePackage)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("npm pack %s: %v: no network?\n%s", speedscopePackage, err, out)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(names) != 1 {
		t.Fatalf("npm has packed %q, %v", names, err)
	}
	packed, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(packed)
	if got := base64.StdEncoding.EncodeToString(sum[:]); got != speedscopeSHA512 {
		t.Fatalf("%s is not what it was: sha512-%s", speedscopePackage, got)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(h.Name, "package/dist/release/")
		if !ok {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: data}
	}
}

// TestSpeedscope: speedscope's page shows of each thread's functions the times that a report tells, to its digits.
func TestSpeedscope(t *testing.T) {
	files := speedscopeFiles(t)
	tr := sample.Random(t, rand.New(rand.NewPCG(5, 5)), 4000)
	file := exported(t, tr, "speedscope")
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServerFS(files))
	mux.HandleFunc("/trace", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	s := httptest.NewServer(mux)
	defer s.Close()
	b := testbrowser.New(t)
	b.Open(s.URL + "/#profileURL=" + s.URL + "/trace")
	b.Wait("document.querySelector('canvas') && document.body.innerText.includes('Sandwich')")
	for i, k := range tr.Tasks { // each is a profile; n goes to the next
		if i > 0 {
			b.Key("n")
		}
		b.Wait(fmt.Sprintf("document.body.innerText.includes('prog (%d) (%d/%d)')", k.TID, i+1, len(tr.Tasks)))
		b.Key("3") // the table of functions
		rows, err := tr.Report(trace.ReportOptions{Tasks: []*trace.Task{k}})
		if err != nil {
			t.Fatal(err)
		}
		const table = `[...document.querySelectorAll("tr:not([title])")]
			.map((r) => [...r.querySelectorAll("td")].map((c) => c.innerText)).filter((r) => r.length === 3)`
		b.Wait("document.body.innerText.includes('Symbol Name') && " + table + ".length > 0") // drawn later than its head
		var shown [][]string
		b.Eval(table, &shown)
		if len(shown) != len(rows) {
			t.Errorf("thread %d: %d functions, want %d", k.TID, len(shown), len(rows))
		}
		for _, r := range rows {
			at := slices.IndexFunc(shown, func(c []string) bool { return c[2] == r.Name })
			if at < 0 {
				t.Errorf("thread %d: no %s", k.TID, r.Name)
				continue
			}
			for j, want := range []int64{r.Total, r.Self} {
				if ns, digit := shownTime(t, shown[at][j]); math.Abs(ns-float64(want)) > 0.51*digit {
					t.Errorf("thread %d: %s shows %s, want %d ns", k.TID, r.Name, shown[at][j], want)
				}
			}
		}
	}
}

// shownTime reads a time as speedscope shows it, such as 523.23µs (9.4%), and what its last digit is worth, in ns.
func shownTime(t *testing.T, s string) (ns, digit float64) {
	t.Helper()
	number, _, _ := strings.Cut(s, " ")
	for _, u := range []struct {
		name string
		ns   float64
	}{{"µs", 1e3}, {"ms", 1e6}, {"ns", 1}, {"s", 1e9}} {
		if v, ok := strings.CutSuffix(number, u.name); ok {
			f, err := strconv.ParseFloat(v, 64)
			if err != nil {
				t.Fatal(err)
			}
			_, decimals, _ := strings.Cut(v, ".")
			return f * u.ns, u.ns * math.Pow10(-len(decimals))
		}
	}
	t.Fatalf("%q is no time", s)
	return 0, 0
}
