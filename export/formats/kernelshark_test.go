package formats

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/internal/sample"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestKernelShark: KernelShark, on a screen of its own, draws a bar for each thread, each in another colour.
func TestKernelShark(t *testing.T) {
	testtool.Need(t, "kernelshark", "Xvfb")
	tr := sample.Random(t, rand.New(rand.NewPCG(5, 5)), 4000)
	dir, err := os.MkdirTemp("", "fentry-kernelshark-") // another user has to come to it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "trace.dat")
	if err := os.Rename(exported(t, tr, "trace.dat"), file); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	display, screen := startXvfb(t)
	cmd := exec.Command("kernelshark", file)
	cmd.Env = append(os.Environ(), "DISPLAY="+display, "HOME=/nonexistent", "XDG_RUNTIME_DIR="+dir, "QT_QPA_PLATFORM=xcb")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 { // it warns root, and waits
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for end := time.Now().Add(testtool.Patience); ; time.Sleep(100 * time.Millisecond) {
		if bars(t, screen) == len(tr.Tasks) {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("it ends: %v\n%s", err, out.String())
		default:
		}
		if time.Now().After(end) {
			t.Errorf("%d bars, want %d", bars(t, screen), len(tr.Tasks))
			break
		}
	}
	cmd.Process.Kill()
	<-ended
	if t.Failed() {
		t.Logf("%s", out.String())
	}
}

// startXvfb starts an X server that shows nothing, and returns its display and the file with what is on its screen.
func startXvfb(t *testing.T) (display, screen string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	dir := t.TempDir()
	cmd := exec.Command("Xvfb", "-displayfd", "3", "-screen", "0", "1000x700x24", "-fbdir", dir, "-nolisten", "tcp")
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	var out bytes.Buffer
	cmd.Stderr = &out
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	number, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("Xvfb: %v\n%s", err, out.String())
	}
	return ":" + strings.TrimSpace(number), filepath.Join(dir, "Xvfb_screen0")
}

// bars is in how many colours, that are no greys, there are lines over a third of a screen: a file as xwd writes it,
// whose head has its own size, the width and height, and how many bytes a line and how many colours it has (XWDFile.h).
func bars(t *testing.T, screen string) int {
	t.Helper()
	b, err := os.ReadFile(screen)
	if err != nil {
		t.Fatal(err)
	}
	word := func(i int) int { return int(binary.BigEndian.Uint32(b[4*i:])) }
	width, height, line := word(4), word(5), word(12)
	pixels := b[word(0)+12*word(19):]
	colours := map[[3]byte]bool{}
	for y := range height {
		run := 0
		var of [3]byte
		for x := range width {
			p := [3]byte(pixels[y*line+4*x:])
			if p != of {
				of, run = p, 0
			}
			if run++; run > width/3 && max(p[0], p[1], p[2])-min(p[0], p[1], p[2]) > 100 {
				colours[p] = true
			}
		}
	}
	return len(colours)
}
