// Command init is the first process of a virtual machine of the tests: it runs the jobs of /jobs.json one after
// another, and writes what came of each to the console.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

type job struct {
	Dir  string
	Argv []string
	Env  []string
	Keep []string // files and directories to send back, and to remove
}

type outcome struct {
	Stdout, Stderr []byte
	Status         string // as the tests write it
	Err            string
	Files          []byte // a tar archive
}

func main() {
	if filepath.Base(os.Args[0]) == "sh" {
		// All the shell that fixtures need: sh -c "exit N".
		n := 127
		_, _ = fmt.Sscanf(os.Args[len(os.Args)-1], "exit %d", &n)
		os.Exit(n)
	}
	if os.Getpid() != 1 {
		if err := run(); err != nil {
			fmt.Println("init:", err)
		}
		return
	}
	for _, m := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}} {
		_ = os.MkdirAll(m[1], 0o755)
		_ = syscall.Mount(m[0], m[1], m[0], 0, "")
	}
	// The first process is nobody's usual parent: the jobs have another one.
	cmd := exec.Command("/proc/self/exe")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Println("init:", err)
	}
	fmt.Println("@end")
	syscall.Sync()
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
}

func run() error {
	b, err := os.ReadFile("/jobs.json")
	if err != nil {
		return err
	}
	var jobs []job
	if err := json.Unmarshal(b, &jobs); err != nil {
		return err
	}
	for _, j := range jobs {
		if err := send(j.run()); err != nil {
			return err
		}
	}
	return nil
}

func (j job) run() (o outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, j.Argv[0], j.Argv[1:]...)
	cmd.Dir, cmd.Env = j.Dir, j.Env
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	cmd.WaitDelay = time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := cmd.Run()
	o.Stdout, o.Stderr = out.Bytes(), errb.Bytes()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		o.Err = "no end"
	case err != nil && !errors.As(err, &exit):
		o.Err = err.Error()
	default:
		if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
			o.Status = "signal " + ws.Signal().String()
		} else {
			o.Status = fmt.Sprintf("exit %d", ws.ExitStatus())
		}
	}
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	for _, k := range j.Keep {
		if err := add(w, k); err != nil && !errors.Is(err, os.ErrNotExist) {
			o.Err += " " + err.Error()
		}
		_ = os.RemoveAll(k)
	}
	_ = w.Close()
	o.Files = files.Bytes()
	return o
}

func add(w *tar.Writer, root string) error {
	return filepath.Walk(root, func(path string, fi os.FileInfo, err error) error {
		if err != nil || !fi.Mode().IsRegular() {
			return err
		}
		b, err := read(path)
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: path, Mode: 0o644, Size: int64(len(b))})
		}
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	})
}

// read reads a file as far as there is something in it: traces are made longer ahead of need.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const seekData, seekHole = 3, 4
	end := int64(0)
	for {
		data, err := f.Seek(end, seekData)
		if errors.Is(err, syscall.ENXIO) {
			break
		}
		if err != nil {
			return nil, err
		}
		if end, err = f.Seek(data, seekHole); err != nil {
			return nil, err
		}
	}
	b := make([]byte, end)
	_, err = io.ReadFull(io.NewSectionReader(f, 0, end), b)
	return b, err
}

// send writes lines that begin with "@": the console may have messages of the kernel between them.
func send(o outcome) error {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := json.NewEncoder(z).Encode(o); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	text := base64.StdEncoding.EncodeToString(b.Bytes())
	var lines bytes.Buffer
	for len(text) > 0 {
		n := min(len(text), 1000)
		lines.WriteString("@" + text[:n] + "\n")
		text = text[n:]
	}
	lines.WriteString("@.\n")
	_, err := io.Copy(os.Stdout, &lines)
	return err
}
