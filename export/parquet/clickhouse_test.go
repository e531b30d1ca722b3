package parquet_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/export/parquet"
	"github.com/fentry-dev/fentry/internal/sample"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// clickhouseServer is where Debian has it: not everybody's PATH has programs of administrators.
const clickhouseServer = "/usr/sbin/clickhouse-server"

// The server's own configuration, so that it does without what is installed beside it: a port, twice the directory.
const clickhouseConfig = `<yandex>
<logger><level>error</level><log>%[2]s/log</log><errorlog>%[2]s/errors</errorlog></logger>
<listen_host>127.0.0.1</listen_host><http_port>%[1]s</http_port>
<path>%[2]s/data/</path><tmp_path>%[2]s/tmp/</tmp_path><mark_cache_size>5368709</mark_cache_size>
<users_config>users.xml</users_config><default_profile>default</default_profile>
<default_database>default</default_database>
</yandex>`

const clickhouseUsers = `<yandex>
<profiles><default><max_threads>2</max_threads></default></profiles>
<users><default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile>
<quota>default</quota></default></users>
<quotas><default><interval><duration>3600</duration><queries>0</queries><errors>0</errors><result_rows>0</result_rows>
<read_rows>0</read_rows><execution_time>0</execution_time></interval></default></quotas>
</yandex>`

// A clickhouse is a server that runs.
type clickhouse struct {
	t   *testing.T
	url string
}

// newClickhouse starts ClickHouse on a port of this machine, with the tables of docs/fleet.md, until the test ends. The
// other statements of the page are returned.
func newClickhouse(t *testing.T) (*clickhouse, []string) {
	testtool.Need(t, clickhouseServer)
	page, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// Somebody else can take a port before the server does, which ends then.
	for try := range 5 {
		port := testtool.FreePort(t)
		c := &clickhouse{t, "http://127.0.0.1:" + port + "/"}
		if c.start(filepath.Join(dir, strconv.Itoa(try)), port) {
			statements := statementsOf(string(page), "clickhouse")
			const tables = 5
			for _, s := range statements[:tables] {
				c.ask(s, nil)
			}
			return c, statements[tables:]
		}
	}
	t.Fatal("no port")
	return nil, nil
}

// start starts the server. It returns false if that has ended before it answered.
func (c *clickhouse) start(dir, port string) bool {
	t := c.t
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"config.xml": fmt.Sprintf(clickhouseConfig, port, dir), "users.xml": clickhouseUsers,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(clickhouseServer, "--config-file="+filepath.Join(dir, "config.xml"))
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	limit := time.After(testtool.Patience)
	for {
		resp, err := http.Get(c.url + "ping") // answers "Ok."
		if err == nil {
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if strings.TrimSpace(string(text)) == "Ok." {
				return true
			}
		}
		select {
		case <-ended:
			t.Logf("clickhouse-server: %s", out.Bytes())
			return false
		case <-limit:
			t.Fatalf("ClickHouse does not answer: %s", out.Bytes())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ask runs a statement, with data if it inserts some, and returns the rows that it answers.
func (c *clickhouse) ask(statement string, data io.Reader) (rows [][]string) {
	c.t.Helper()
	resp, err := http.Post(c.url+"?query="+url.QueryEscape(statement), "text/plain", data)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		c.t.Fatalf("%s: %s: %v %s", statement, resp.Status, err, text)
	}
	for line := range strings.Lines(string(text)) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return rows
}

// load inserts the files of a data set, without their first lines.
func (c *clickhouse) load(lake string) {
	c.t.Helper()
	for _, table := range []string{"calls", "paths", "functions", "tasks", "runs"} {
		var all bytes.Buffer
		if err := filepath.WalkDir(filepath.Join(lake, table), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			_, rows, _ := bytes.Cut(text, []byte("\n"))
			all.Write(rows)
			return err
		}); err != nil {
			c.t.Fatal(err)
		}
		c.ask("INSERT INTO "+table+" FORMAT CSV", &all)
	}
}

// TestClickhouse: the questions of docs/fleet.md, asked of a hundred runs of ten hosts, have the answers that are known.
func TestClickhouse(t *testing.T) {
	c, statements := newClickhouse(t)
	f := newFleet(t, 100, parquet.WriteCSV)
	c.load(filepath.Join(f.dir, "lake"))
	if len(statements) != 8 {
		t.Fatalf("%d statements in docs/fleet.md", len(statements))
	}
	for i, q := range []struct {
		name string
		want [][]string
	}{
		{"slowest", f.slowest()}, {"builds", f.builds()}, {"p99", f.p99(func(n int) int { return 99 * n / 100 })},
		{"lost", f.hosts()},
	} {
		checkAnswer(t, q.name, q.want, c.ask(statements[i], nil))
	}
	c.ask(statements[4], nil)
	deepest, err := strconv.Atoi(c.ask(statements[5], nil)[0][0])
	if err != nil || deepest != 3 {
		t.Fatal(deepest, err)
	}
	for n := 2; n <= deepest; n++ {
		c.ask(strings.ReplaceAll(statements[6], "{N}", strconv.Itoa(n)), nil)
	}
	checkAnswer(t, "flame graph", f.flame(), c.ask(statements[7], nil))
}

// TestClickhouseSample: what a report says of a trace with one of everything, the tables say, too.
func TestClickhouseSample(t *testing.T) {
	c, _ := newClickhouse(t)
	tr := sample.Random(t, rand.New(rand.NewPCG(5, 5)), 300_000)
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := parquet.WriteCSV(root, export.From(tr)); err != nil {
		t.Fatal(err)
	}
	c.load(dir)
	got := map[string]string{}
	for _, r := range c.ask(`SELECT name, count(), sum(self_ns) FROM calls
		ANY INNER JOIN (SELECT run, function, name FROM functions) USING (run, function) GROUP BY name`, nil) {
		got[r[0]] = fmt.Sprintf("%s calls, %s self", r[1], r[2])
	}
	if diff := cmp.Diff(reported(t, tr), got); diff != "" {
		t.Errorf("-report +ClickHouse:\n%s", diff)
	}
}
