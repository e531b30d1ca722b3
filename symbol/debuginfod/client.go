package debuginfod

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/mapped"
)

// ErrNotFound is returned when no server has the file.
var ErrNotFound = errors.New("no debuginfod server has it")

const (
	// DefaultStall is elfutils' default of DEBUGINFOD_TIMEOUT.
	DefaultStall = 90 * time.Second
	// stallBytes is how much must arrive in that time, as elfutils has it.
	stallBytes = 100 << 10
	// DefaultMaxSize bounds a file: the largest debug files of distributions have 2 to 3 GB.
	DefaultMaxSize = 8 << 30
	// DefaultMiss is how long it is remembered that no server has a file, unless the cache's file cache_miss_s says
	// otherwise.
	DefaultMiss = 10 * time.Minute
	// fileName is what a debug file is called in the cache, in the directory of its build-id.
	fileName = "debuginfo"
)

// A Client asks servers. It is safe for concurrent use.
type Client struct {
	URLs    []string // of servers, asked in this order
	Cache   string   // directory; it is made when there is something to put into it
	Stall   time.Duration
	MaxTime time.Duration // for a whole download, 0: no limit
	MaxSize int64         // bytes of a file
	// Progress is told how many bytes of a download have come; total is -1 if the server does not say. nil: nobody is.
	Progress func(url string, got, total int64)
}

// FromEnv returns a client by elfutils' variables DEBUGINFOD_URLS, DEBUGINFOD_CACHE_PATH, DEBUGINFOD_TIMEOUT,
// DEBUGINFOD_MAXTIME and DEBUGINFOD_MAXSIZE; nil if no server is named. Numbers that are none count as absent.
func FromEnv(lookup func(string) (string, bool)) *Client {
	get := func(name string) string { v, _ := lookup(name); return v }
	number := func(name string) int64 {
		n, err := strconv.ParseInt(get(name), 10, 32)
		if err != nil || n < 0 {
			return 0
		}
		return n
	}
	c := &Client{URLs: strings.Fields(get("DEBUGINFOD_URLS")), Stall: DefaultStall, MaxSize: DefaultMaxSize}
	if len(c.URLs) == 0 {
		return nil
	}
	if n := number("DEBUGINFOD_TIMEOUT"); n > 0 {
		c.Stall = time.Duration(n) * time.Second
	}
	c.MaxTime = time.Duration(number("DEBUGINFOD_MAXTIME")) * time.Second
	if n, err := strconv.ParseInt(get("DEBUGINFOD_MAXSIZE"), 10, 64); err == nil && n > 0 {
		c.MaxSize = n
	}
	if c.Cache = get("DEBUGINFOD_CACHE_PATH"); c.Cache == "" {
		c.Cache = defaultCache(get("HOME"), get("XDG_CACHE_HOME"))
	}
	return c
}

// defaultCache is the directory that debuginfod's clients share.
func defaultCache(home, xdg string) string {
	old := filepath.Join(home, ".debuginfod_client_cache")
	if st, err := os.Stat(old); err == nil && st.IsDir() {
		return old
	}
	if xdg == "" {
		xdg = filepath.Join(home, ".cache")
	}
	return filepath.Join(xdg, "debuginfod_client")
}

// Find returns the path of the debug file with the given build-id: in the cache, or downloaded into it. ErrNotFound
// says that no server has it; other errors name the server.
func (c *Client) Find(ctx context.Context, buildID []byte) (path string, err error) {
	if len(buildID) < 2 || len(buildID) > 64 {
		return "", fmt.Errorf("a build-id of %d bytes", len(buildID))
	}
	dir := filepath.Join(c.Cache, hex.EncodeToString(buildID))
	path = filepath.Join(dir, fileName)
	switch st, err := os.Lstat(path); {
	case err != nil:
	case st.Size() > 0:
		return path, nil
	case time.Since(st.ModTime()) < c.miss():
		return "", ErrNotFound // an empty file remembers that
	default:
		os.Remove(path)
	}
	var errs []error
	missing := 0
	for _, server := range c.URLs {
		err := c.download(ctx, server, buildID, dir)
		if err == nil {
			return path, nil
		}
		if errors.Is(err, ErrNotFound) {
			missing++
			continue
		}
		errs = append(errs, fmt.Errorf("debuginfod %s: %w", server, err))
	}
	if missing == len(c.URLs) {
		c.remember(dir)
		return "", ErrNotFound
	}
	return "", errors.Join(errs...)
}

// miss is how long an absent file is taken for absent.
func (c *Client) miss() time.Duration {
	b, err := os.ReadFile(filepath.Join(c.Cache, "cache_miss_s"))
	if err != nil || len(b) > 20 {
		return DefaultMiss
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 32)
	if err != nil || n < 0 {
		return DefaultMiss
	}
	return time.Duration(n) * time.Second
}

// remember leaves an empty file for what no server has. Without it they are asked again, no more.
func (c *Client) remember(dir string) {
	if os.MkdirAll(dir, 0o700) != nil {
		return
	}
	if f, err := os.OpenFile(filepath.Join(dir, fileName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
		f.Close()
	}
}

// download fetches a file into dir. It has its name only when it is whole.
func (c *Client) download(ctx context.Context, server string, buildID []byte, dir string) (err error) {
	at, err := url.JoinPath(server, "buildid", hex.EncodeToString(buildID), fileName)
	if err != nil {
		return err
	}
	if c.MaxTime > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.MaxTime, fmt.Errorf("not done after %v", c.MaxTime))
		defer cancel()
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	stall := time.AfterFunc(c.Stall, func() { stop(fmt.Errorf("less than %d KiB in %v", stallBytes>>10, c.Stall)) })
	defer stall.Stop()
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "fentry")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return ErrNotFound
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("status %d", resp.StatusCode)
	case resp.ContentLength > c.MaxSize:
		return fmt.Errorf("%d bytes, more than %d", resp.ContentLength, c.MaxSize)
	}
	return c.store(resp, dir, buildID, func() { stall.Reset(c.Stall) })
}

// store writes what a server sends into the cache. alive is called for every stallBytes.
func (c *Client) store(resp *http.Response, dir string, buildID []byte, alive func()) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, fileName+".*")
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
		if err == nil {
			err = os.Rename(f.Name(), filepath.Join(dir, fileName))
		}
		if err != nil {
			os.Remove(f.Name())
			os.Remove(dir) // unless something else is in it
		}
	}()
	var got int64
	for {
		n, err := io.CopyN(f, resp.Body, stallBytes)
		got += n
		if c.Progress != nil {
			c.Progress(resp.Request.URL.Host, got, resp.ContentLength)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if got > c.MaxSize {
			return fmt.Errorf("more than %d bytes", c.MaxSize)
		}
		alive()
	}
	if err := f.Chmod(0o400); err != nil {
		return err
	}
	return check(f.Name(), buildID)
}

// check reports whether the file at path is an ELF file with that build-id.
func check(path string, buildID []byte) error {
	m, err := mapped.Open(path)
	if errors.Is(err, mapped.ErrEmpty) || errors.Is(err, fs.ErrNotExist) {
		return errors.New("nothing was sent")
	}
	if err != nil {
		return err
	}
	defer m.Close()
	return mapped.Guard(func() error {
		f, err := elfio.Parse(m.Data)
		if err != nil {
			return fmt.Errorf("what was sent: %w", err)
		}
		if !bytes.Equal(f.BuildID(), buildID) {
			return fmt.Errorf("what was sent has the build-id %x", f.BuildID())
		}
		return nil
	})
}
