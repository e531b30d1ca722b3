package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/internal/safetext"
)

// app is what the commands share: the standard streams, the environment and
// the options every command has.
type app struct {
	stdin     *os.File
	stdout    io.Writer // data
	stderr    io.Writer // everything else
	lookupEnv func(string) (string, bool)

	quiet   bool
	verbose int
	color   string // auto, always or never
	noPager bool

	out *output // that of the command, nil if it has opened none
}

// getenv returns an environment variable, "" when it is not set.
func (a *app) getenv(name string) string {
	v, _ := a.lookupEnv(name)
	return v
}

// The exit statuses every command uses. "fentry record" is the exception: it
// ends the way the program it ran ended.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// exitError ends fentry with a status of the command's own choice. A nil Err
// prints nothing.
type exitError struct {
	Code int
	Err  error
}

func (e *exitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *exitError) Unwrap() error { return e.Err }

// usageError is a command line that makes no sense; it is answered with a
// reminder of the command's synopsis and exit status 2.
type usageError struct {
	cmd *cobra.Command
	err error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef makes a usageError of cmd.
func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{cmd, fmt.Errorf(format, args...)}
}

// newRootCmd makes fentry's command with all others, or the only one that is needed. Their order is that of "fentry help".
func newRootCmd(a *app, only string) *cobra.Command {
	root := &cobra.Command{
		Use:   "fentry",
		Short: "ftrace for any program",
		Long: `fentry is ftrace for any program. It finds the places at function entry where
a tracer can be hooked in, runs the program traced and shows every call with the
time it took. The traced program needs no kernel support, root, ptrace or
LD_PRELOAD.`,
		Example: `  fentry demo                        see it work, on a program of its own
  fentry list ./prog                 what can be traced in ./prog
  fentry record ./prog args...       run it traced; writes fentry.data
  fentry replay                      every call, nested, with its duration
  fentry report                      a table: calls, total and self time`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,

		SuggestionsMinimumDistance: 2,

		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.checkGlobals(); err != nil {
				return &usageError{cmd, err}
			}
			return cmp.Or(checkFiles(cmd.Name()), checkThreads(cmd.Name()))
		},
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if asked, _ := cmd.Flags().GetBool("version"); asked {
				return a.printVersion()
			}
			if len(args) == 0 {
				return usagef(cmd, "no command given")
			}
			return unknownCommand(cmd, args[0])
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{cmd, plainFlagError(err)}
	})
	root.SetHelpFunc(printHelp)

	pf := root.PersistentFlags()
	pf.BoolVarP(&a.quiet, "quiet", "q", false, "print only data and errors")
	pf.CountVarP(&a.verbose, "verbose", "v", "print more on stderr (repeatable)")
	pf.StringVar(&a.color, "color", "auto", "use colours `WHEN`: auto, always or never")
	pf.BoolVar(&a.noPager, "no-pager", false, "do not pipe long output through a pager")
	pf.BoolP("help", "h", false, "print help and examples")
	pf.Lookup("help").Hidden = true
	root.Flags().Bool("version", false, "print fentry's version")

	a.addCommands(root, only)
	return root
}

// A command is an entry of the table.
type command struct {
	group, name string
	make        func(*app) *cobra.Command
	others      bool // it is about other commands, too
}

// commands is the command table.
func commands() []command {
	return []command{
		{groupRun, "record", newRecordCmd, false},
		{groupRun, "live", newLiveCmd, false},
		{groupRun, "top", newTopCmd, false},
		{groupRun, "control", newControlCmd, false},
		{groupRun, "detach", newDetachCmd, false},
		{groupRun, "mount", newMountCmd, false},
		{groupRun, "dump", newDumpCmd, false},
		{groupRun, "replay", newReplayCmd, false},
		{groupRun, "report", newReportCmd, false},
		{groupRun, "graph", newGraphCmd, false},
		{groupRun, "view", newViewCmd, false},
		{groupRun, "export", newExportCmd, false},
		{groupRun, "info", newInfoCmd, false},
		{groupRun, "compress", newCompressCmd, false},
		{groupRun, "stacks", newStacksCmd, false},
		{groupBinary, "list", newListCmd, false},
		{groupBinary, "patch", newPatchCmd, false},
		{groupBinary, "mcount", newMcountCmd, false},
		{groupBinary, "stub", newStubCmd, false},
		{groupOther, "demo", newDemoCmd, false},
		{groupOther, "version", newVersionCmd, false},
		{groupOther, "completion", newCompletionCmd, true},
		{"", "__man", newManCmd, true},
	}
}

// only returns the one command that a command line needs, "" for all: to make those that nobody asks for takes as long as a short
// program.
func (a *app) only(args []string) string {
	if len(args) > 0 && a.getenv("FENTRY_OPTS") == "" { // which can have options of all
		for _, c := range commands() {
			if c.name == args[0] && !c.others {
				return c.name
			}
		}
	}
	return ""
}

// addCommands enters the commands in the table, or the only one that is needed.
func (a *app) addCommands(root *cobra.Command, only string) {
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run and inspect:"},
		&cobra.Group{ID: groupBinary, Title: "Programs on disk:"},
		&cobra.Group{ID: groupOther, Title: "Other:"},
	)
	for _, c := range commands() {
		if only == "" || c.name == only {
			cmd := c.make(a)
			cmd.GroupID = c.group
			root.AddCommand(cmd)
		}
	}
	root.SetHelpCommand(newHelpCmd(a))
	root.SetHelpCommandGroupID(groupOther)
	cobra.EnableCommandSorting = false
	prepare(root)
	a.registerPatternCompletion(root)
}

const (
	groupRun    = "run"
	groupBinary = "binary"
	groupOther  = "other"
)

// prepare gives every command what all have in common: checked global options
// and usage errors that know their command.
func prepare(cmd *cobra.Command) {
	if cmd.Args != nil {
		check := cmd.Args
		cmd.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				var u *usageError
				if errors.As(err, &u) {
					return err
				}
				return &usageError{c, operandError(c, check, args)}
			}
			return nil
		}
	}
	cmd.DisableFlagsInUseLine = true
	for _, c := range cmd.Commands() {
		prepare(c)
	}
}

// operandError says which operand is missing or too many.
func operandError(c *cobra.Command, check cobra.PositionalArgs, args []string) error {
	for n := len(args) - 1; n >= 0; n-- {
		if check(c, args[:n]) == nil {
			return fmt.Errorf("unexpected operand %q", args[n])
		}
	}
	return errors.New("an operand is missing")
}

// unknownCommand explains a first operand that is no command, with the most
// likely thing the user meant.
func unknownCommand(root *cobra.Command, name string) error {
	if s := root.SuggestionsFor(name); len(s) > 0 {
		return usagef(root, "unknown command %q; did you mean %q?", name, s[0])
	}
	if strings.Contains(name, "/") {
		return usagef(root, "unknown command %q; to trace a program: fentry record %s", name, name)
	}
	return usagef(root, "unknown command %q", name)
}

// known refuses a command that does not exist even where help is asked of it.
func known(root *cobra.Command, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || strings.HasPrefix(args[0], "__") || args[0] == "help" {
		return nil
	}
	if c, _, err := root.Find(args[:1]); err != nil || c == root {
		return unknownCommand(root, args[0])
	}
	return nil
}

// run executes one command line and returns the exit status.
func run(args []string, a *app) int {
	root := newRootCmd(a, a.only(args))
	args, err := withDefaultOptions(root, args, a.getenv("FENTRY_OPTS"))
	var cmd *cobra.Command
	if err == nil {
		err = known(root, args)
	}
	if err == nil {
		root.SetArgs(args)
		err = mapped.Guard(func() (err error) {
			cmd, err = root.ExecuteC()
			return err
		})
		if a.out != nil && !a.out.closed {
			a.out.close(err) // a fault has ended the command: the pager still has the terminal
		}
	}
	if err == nil {
		return exitOK
	}
	var fault *mapped.Fault
	if errors.As(err, &fault) {
		err = fault // says which file, whatever was to be done with it
	}
	if cmd == nil {
		cmd = root
	}
	return a.fail(cmd, err)
}

// fail prints err the way its kind asks for and returns the exit status.
func (a *app) fail(cmd *cobra.Command, err error) int {
	var usage *usageError
	if errors.As(err, &usage) {
		if usage.cmd != nil {
			cmd = usage.cmd
		}
		fmt.Fprintf(a.stderr, "%s: %s\n", cmd.CommandPath(), oneLine(usage.Error()))
		fmt.Fprintf(a.stderr, "usage: %s\n", synopsis(cmd))
		fmt.Fprintf(a.stderr, "try: %s -h\n", cmd.CommandPath())
		if cmd.Name() == "record" || cmd.Name() == "live" || cmd.Name() == "top" {
			return exitRecord // 2 may be what the program ends with
		}
		return exitUsage
	}
	var exit *exitError
	if errors.As(err, &exit) {
		if exit.Err != nil {
			a.failed(exit.Err)
		}
		return exit.Code
	}
	a.failed(err)
	return exitFailed
}

// failed prints what a command has failed with.
func (a *app) failed(err error) {
	p := paint(a.colors(a.stderr))
	fmt.Fprintf(a.stderr, "%s %s\n", p.with(sgrRed, "fentry:"), oneLine(err.Error()))
}

// oneLine joins the lines of a message, because a message is one line.
func oneLine(s string) string { return safetext.Message(s) }

// sayf prints a line on stderr that must not be missed.
func (a *app) sayf(format string, args ...any) {
	fmt.Fprintln(a.stderr, oneLine(fmt.Sprintf(format, args...)))
}

// notef prints a remark on stderr, unless the user wants none.
func (a *app) notef(format string, args ...any) {
	if !a.quiet {
		a.sayf(format, args...)
	}
}
