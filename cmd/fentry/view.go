package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/trace"
	"github.com/fentry-dev/fentry/view"
)

type viewCmd struct {
	inputFlags
	port      int
	noBrowser bool
}

func newViewCmd(a *app) *cobra.Command {
	var c viewCmd
	cmd := &cobra.Command{
		Use:   "view [options] [DIR]",
		Short: "show a trace in a browser: timeline, flame graph, tables",
		Long: `view serves a page about a trace on 127.0.0.1, prints its address and, on a
desktop, opens it in a browser. It ends with Ctrl-C. The page needs nothing from
anywhere else, and the address, which has a random part, is all that is needed to
read the trace: treat it as a password.

The page asks for what is on the screen only, so large traces open as fast as
small ones. With a trace that has no index, view makes one first.`,
		Example: `  fentry view                     the trace in fentry.data
  fentry view --no-browser        only print the address
  fentry view --port 8080         a port that is known, for ssh -L`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(a, cmd, args) },
	}
	f := cmd.Flags()
	f.StringVarP(&c.dir, "input", "i", "", "read the trace in `DIR` (default $FENTRY_DATA or fentry.data)")
	f.IntVar(&c.port, "port", 0, "listen on the port `N`; 0: one that is free")
	f.BoolVar(&c.noBrowser, "no-browser", false, "do not open a browser")
	c.names.add(cmd)
	cmd.ValidArgsFunction = completeTraceDir
	return cmd
}

func (c *viewCmd) run(a *app, cmd *cobra.Command, args []string) error {
	if c.port < 0 || c.port > 65535 {
		return usagef(cmd, "--port %d: not a port", c.port)
	}
	t, err := c.open(a, cmd, args)
	if err != nil {
		return err
	}
	defer t.Close()
	if tracer := tracerOf(t); tracer == patch.Profile.String() || tracer == patch.Count.String() {
		return fmt.Errorf("%s: recorded with the %s tracer: there are sums, but no single calls; print them with: fentry report",
			t.Dir, tracer)
	}
	if t.Bytes >= trace.WorthIndex {
		a.notef("fentry: %s: reading; the first time this can take a while", t.Dir)
	}
	v, err := view.New(t)
	if err != nil {
		return pathError(err)
	}
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)))
	if err != nil {
		return fmt.Errorf("--port %d: %w", c.port, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	page := view.NewServer(v, l.Addr())
	if _, err := fmt.Fprintln(a.stdout, page.URL()); err != nil {
		l.Close()
		return err
	}
	if !c.noBrowser {
		c.browse(a, page.URL())
	}
	return serve(ctx, l, page)
}

// serve answers until the context ends.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 1 << 16}
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-ctx.Done()
		// What is being counted cannot be stopped, and nobody waits for it.
		s.Close()
	}()
	err := s.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		<-done
		return nil
	}
	return err
}

// browse opens the address where there is a desktop. The address is no argument of a process that others could read
// longer than it takes to start: programs that open addresses take it no other way.
func (c *viewCmd) browse(a *app, url string) {
	if a.getenv("DISPLAY") == "" && a.getenv("WAYLAND_DISPLAY") == "" || a.getenv("SSH_CONNECTION") != "" {
		return
	}
	opener, err := exec.LookPath("xdg-open")
	if err != nil {
		return
	}
	cmd := exec.Command(opener, url)
	if err := cmd.Start(); err != nil {
		a.notef("fentry: %s: %v", opener, err)
		return
	}
	go func() { _ = cmd.Wait() }()
}
