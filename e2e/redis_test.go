package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/e2e/corpus"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// A server is a running redis-server.
type server struct {
	cmd      *exec.Cmd
	ended    chan struct{} // closed then, with err
	err      error
	out      bytes.Buffer // until then it is written to
	port     string
	dir, cli string
}

func startServer(t testing.TB, b corpus.Built, argv []string, env ...string) *server {
	t.Helper()
	s := &server{port: testtool.FreePort(t), dir: t.TempDir(), cli: filepath.Join(b.Dir, "src", "redis-cli"), ended: make(chan struct{})}
	argv = append(argv, "--port", s.port, "--bind", "127.0.0.1", "--save", "", "--dir", s.dir, "--io-threads", "2", "--loglevel", "warning")
	s.cmd = exec.Command(argv[0], argv[1:]...)
	s.cmd.Env, s.cmd.Dir = append(baseEnv(), env...), s.dir
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.err = s.cmd.Wait(); close(s.ended) }()
	t.Cleanup(s.kill)
	for deadline := time.Now().Add(hangs); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", "127.0.0.1:"+s.port)
		if err == nil {
			c.Close()
			return s
		}
		select {
		case <-s.ended:
		default:
			if time.Now().Before(deadline) {
				continue
			}
		}
		s.kill()
		t.Fatalf("the server does not listen: %v; %v\n%s", err, s.err, clip(s.out.String()))
	}
}

// kill ends the server, and its children, if it has not ended.
func (s *server) kill() {
	select {
	case <-s.ended:
		return
	default:
	}
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	<-s.ended
}

// wait waits for the end of a server that has been told to end.
func (s *server) wait(t testing.TB) error {
	t.Helper()
	select {
	case <-s.ended:
	case <-time.After(hangs):
		s.kill()
		t.Errorf("the server does not end\n%s", clip(s.out.String()))
	}
	return s.err
}

// stop shuts the server down and returns its exit status.
func (s *server) stop(t testing.TB) string {
	t.Helper()
	run(t, command{argv: []string{s.cli, "-p", s.port, "shutdown", "nosave"}})
	_ = s.wait(t)
	return s.cmd.ProcessState.String()
}

// redisScript is a sequence of commands of every data type whose replies depend only on it.
func redisScript(n int) string {
	r := rand.New(rand.NewPCG(5, 6))
	var b strings.Builder
	for i := range n {
		k := r.IntN(50)
		switch r.IntN(16) {
		case 0:
			fmt.Fprintf(&b, "set s%d value%d\n", k, i)
		case 1:
			fmt.Fprintf(&b, "get s%d\n", k)
		case 2:
			fmt.Fprintf(&b, "incrby n%d %d\n", k, i)
		case 3:
			fmt.Fprintf(&b, "rpush l%d a%d b%d\n", k, i, i+1)
		case 4:
			fmt.Fprintf(&b, "lrange l%d 0 5\n", k)
		case 5:
			fmt.Fprintf(&b, "hset h%d f%d %d g %d\n", k, i%10, i, i)
		case 6:
			fmt.Fprintf(&b, "hget h%d f3\n", k)
		case 7:
			fmt.Fprintf(&b, "zadd z%d %d m%d\n", k, i%100, i%37)
		case 8:
			fmt.Fprintf(&b, "zrange z%d 0 -1 withscores\n", k)
		case 9:
			fmt.Fprintf(&b, "eval \"return redis.call('incrby', KEYS[1], ARGV[1])\" 1 n%d 2\n", k)
		case 10:
			fmt.Fprintf(&b, "pfadd p%d e%d\n", k, i)
		case 11:
			fmt.Fprintf(&b, "pfcount p%d\n", k)
		case 12:
			fmt.Fprintf(&b, "setbit b%d %d 1\n", k, i%1000)
		case 13:
			fmt.Fprintf(&b, "sort l%d alpha limit 0 4\n", k)
		case 14:
			fmt.Fprintf(&b, "xadd x%d %d-1 f v%d\n", k, i+1, i)
		case 15:
			fmt.Fprintf(&b, "lpop s%d\n", k) // mostly a wrong type
		}
	}
	b.WriteString("bgsave\n")
	return b.String()
}

func TestRedis(t *testing.T) {
	testtool.Long(t)
	for _, tc := range []struct {
		kind string
		way  way
	}{{"fentry", byRecord}, {"patchable", byPatching}} {
		t.Run(tc.kind+"/"+string(tc.way), func(t *testing.T) {
			t.Parallel()
			b := buildProgram(t, corpus.Redis, kindNamed(t, tc.kind))
			data := filepath.Join(t.TempDir(), "data")
			var replies, status [2]string
			var files []string
			for i, w := range []way{"", tc.way} {
				argv, env := []string{b.Program}, []string(nil)
				switch w {
				case byRecord:
					argv = []string{fentry, "record", "-o", data, b.Program}
				case byPatching:
					patched := filepath.Join(t.TempDir(), "redis-server")
					patchFile(t, b.Program, patched, nil)
					argv, env = []string{patched}, []string{"FENTRY_DATA=" + data}
					files = append(files, patched)
				}
				s := startServer(t, b, argv, env...)
				replies[i] = run(t, command{argv: []string{s.cli, "-p", s.port}, stdin: redisScript(4000)}).mustSucceed(t).stdout
				waitForSave(t, s)
				run(t, command{argv: []string{filepath.Join(b.Dir, "src", "redis-benchmark"), "-p", s.port, "-q", "-n", "5000", "-c", "20",
					"-t", "set,get,incr,lpush,zadd,lrange_100,mset"}}).mustSucceed(t)
				status[i] = s.stop(t)
				if t.Failed() {
					t.Log(clip(s.out.String()))
				}
			}
			if replies[0] != replies[1] {
				t.Errorf("replies differ\n--- untraced\n%s--- traced\n%s", clip(replies[0]), clip(replies[1]))
			}
			if status[0] != status[1] {
				t.Errorf("the server ended with %s, untraced with %s", status[1], status[0])
			}
			tr := decodeTrace(t, data, files...)
			t.Logf("%d events in %d processes and %d threads", tr.events, len(tr.pids), len(tr.tasks))
			if tr.lost != 0 || tr.events < 500_000 {
				t.Errorf("%d events, %d lost", tr.events, tr.lost)
			}
			if len(tr.pids) != 2 {
				t.Errorf("%d processes traced, want the server and its BGSAVE child", len(tr.pids))
			}
			if err := os.RemoveAll(data); err != nil {
				t.Error(err)
			}
		})
	}
}

// waitForSave waits until the BGSAVE child is done and its dump can be loaded.
func waitForSave(t testing.TB, s *server) {
	t.Helper()
	for deadline := time.Now().Add(hangs); ; time.Sleep(50 * time.Millisecond) {
		r := run(t, command{argv: []string{s.cli, "-p", s.port, "info", "persistence"}})
		if r.status != "exit 0" {
			s.kill()
			t.Logf("the server, %v:\n%s", s.err, clip(s.out.String()))
		}
		info := r.mustSucceed(t).stdout
		if strings.Contains(info, "rdb_bgsave_in_progress:0") {
			if !strings.Contains(info, "rdb_last_bgsave_status:ok") {
				t.Errorf("BGSAVE failed:\n%s", info)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("BGSAVE does not end:\n%s", info)
		}
	}
}

// TestRedisUnits runs a part of Redis' own test suite against a server that profiles itself.
func TestRedisUnits(t *testing.T) {
	testtool.Long(t)
	t.Parallel()
	testtool.Need(t, "tclsh", "kill") // without kill the tests start servers and never stop one
	b := buildProgram(t, corpus.Redis, kindNamed(t, "fentry"))
	dir := t.TempDir()
	for _, d := range []string{"tests", "utils"} {
		copyDir(t, filepath.Join(b.Dir, d), filepath.Join(dir, d))
	}
	if err := os.Mkdir(filepath.Join(dir, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"redis-cli", "redis-benchmark"} {
		if err := os.Symlink(filepath.Join(b.Dir, "src", name), filepath.Join(dir, "src", name)); err != nil {
			t.Fatal(err)
		}
	}
	patchFile(t, b.Program, filepath.Join(dir, "src", "redis-server"), []string{"-T", "profile"})
	units := []string{"unit/type/string", "unit/type/hash", "unit/scan", "unit/multi"}
	if testtool.Wide() {
		units = append(units, "unit/type/list", "unit/type/zset", "unit/scripting", "unit/dump", "unit/expire", "unit/sort", "unit/pubsub", "unit/bitops")
	}
	// They empty the database of any server that has one of their ports, so no other test has one.
	argv := []string{"tclsh", "tests/test_helper.tcl", "--clients", "1", "--baseport", testtool.FreePortIn(t, 9000, 11900), "--portcount", "100", "--tags", "-needs:debug -slow"}
	for _, u := range units {
		argv = append(argv, "--single", u)
	}
	r := run(t, command{dir: dir, argv: argv})
	if r.status != "exit 0" || !strings.Contains(r.stdout, "All tests passed without errors") {
		t.Errorf("redis' own tests: %s %v\n%s\n%s", r.status, r.err, clip(r.stdout), clip(r.stderr))
	}
	// All servers start in the same directory, so the last two traces are there.
	for _, data := range []string{"fentry.data", "fentry.data.old"} {
		tr := decodeTrace(t, filepath.Join(dir, data), filepath.Join(dir, "src", "redis-server"))
		if tr.lost != 0 || len(tr.entries) < 100 {
			t.Errorf("%s: profile of %d functions, %d lost", data, len(tr.entries), tr.lost)
		}
	}
}
