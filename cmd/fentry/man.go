package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fentry-dev/fentry/internal/atomicfile"
	"github.com/fentry-dev/fentry/record"
)

// manSections holds the hand-written sections of each page, man/NAME.man, in
// the macros of man(7). The rest of a page comes from the command table.
//
//go:embed man/*.man
var manSections embed.FS

//go:generate go run . __man ../../docs/man

func newManCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "__man DIR",
		Short:  "write the manual pages into a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o777); err != nil {
				return pathError(err)
			}
			for _, c := range append([]*cobra.Command{cmd.Root()}, cmd.Root().Commands()...) {
				if c.Hidden {
					continue
				}
				var page strings.Builder
				if err := writeManPage(&page, c); err != nil {
					return fmt.Errorf("%s: %w", manName(c), err)
				}
				name := filepath.Join(args[0], manName(c)+".1")
				err := atomicfile.Write(name, atomicfile.Options{Own: true, NoSync: true}, func(w *os.File) error {
					_, err := w.WriteString(page.String())
					return err
				})
				if err != nil {
					return pathError(err)
				}
			}
			return nil
		},
	}
}

func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// writeManPage writes the page of one command.
func writeManPage(w io.Writer, c *cobra.Command) error {
	name := manName(c)
	tail, err := manSections.ReadFile("man/" + c.Name() + ".man")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fmt.Fprintf(w, ".\\\" Made by \"fentry __man\" from the command table and cmd/fentry/man; do not edit.\n")
	fmt.Fprintf(w, ".TH %s 1 %s \"fentry %s\" \"fentry manual\"\n", strings.ToUpper(roff(name)), versionDate, version)
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", roff(name), roff(c.Short))
	fmt.Fprintf(w, ".SH SYNOPSIS\n")
	words := strings.SplitN(synopsis(c), " ", 3)
	if !c.HasParent() {
		words = []string{"fentry", strings.Join(words[1:], " ")}
	} else {
		words[0] += " " + words[1]
		words = append(words[:1], words[2:]...)
	}
	fmt.Fprintf(w, ".B %s\n", roff(words[0]))
	if len(words) > 1 {
		fmt.Fprintln(w, roff(words[1]))
	}
	fmt.Fprintf(w, ".SH DESCRIPTION\n")
	long := c.Long
	if long == "" {
		long = strings.ToUpper(c.Short[:1]) + c.Short[1:] + "."
	}
	for i, p := range strings.Split(strings.TrimSpace(long), "\n\n") {
		if i > 0 {
			fmt.Fprintln(w, ".PP")
		}
		if strings.HasPrefix(p, "  ") {
			manLines(w, p)
			continue
		}
		fmt.Fprintln(w, roffProse(p))
	}
	if !c.HasParent() {
		for _, g := range c.Groups() {
			fmt.Fprintf(w, ".SS %s\n", roff(strings.TrimSuffix(g.Title, ":")))
			for _, s := range c.Commands() {
				if s.GroupID == g.ID && !s.Hidden {
					fmt.Fprintf(w, ".TP\n.BR %s (1)\n%s\n", roff(manName(s)), roff(s.Short))
				}
			}
		}
		manFlags(w, "OPTIONS", "These options work with every command.", c.PersistentFlags())
		manFlags(w, "", "Without a command:", c.LocalNonPersistentFlags())
	} else {
		manFlags(w, "OPTIONS", "", c.LocalNonPersistentFlags())
		if c.LocalNonPersistentFlags().HasAvailableFlags() {
			fmt.Fprintln(w, ".PP")
		} else {
			fmt.Fprintln(w, ".SH OPTIONS")
		}
		fmt.Fprintf(w, "Options for every command, such as\n.B \\-\\-color\nand\n.BR \\-q ,\n"+
			"are described in\n.BR fentry (1).\n")
	}
	sections := string(tail)
	sections = strings.Replace(sections, "@REASONS@\n", manReasons(), 1)
	sections = strings.Replace(sections, "@KINDS@\n", manKinds(), 1)
	io.WriteString(w, sections)
	if !strings.Contains(sections, ".SH EXIT STATUS") {
		fmt.Fprintf(w, ".SH EXIT STATUS\n0 on success, 1 when something failed, 2 when the command line was wrong.\n")
	}
	manExamples(w, c.Example)
	manSeeAlso(w, c)
	return nil
}

// manFlags writes the options of set as a section; without a title they follow
// those before them.
func manFlags(w io.Writer, title, intro string, set *pflag.FlagSet) {
	if !set.HasAvailableFlags() {
		return
	}
	if title != "" {
		fmt.Fprintf(w, ".SH %s\n", title)
	} else {
		fmt.Fprintln(w, ".PP")
	}
	if intro != "" {
		fmt.Fprintln(w, roffProse(intro))
	}
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		long := "\\-\\-" + roff(f.Name)
		value := ""
		if n, _ := pflag.UnquoteUsage(f); n != "" && takesValue(f) {
			value = " \\fI" + roff(n) + "\\fR"
		}
		fmt.Fprint(w, ".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(w, "\\fB\\-%s\\fR, ", roff(f.Shorthand))
		}
		fmt.Fprintf(w, "\\fB%s\\fR%s\n%s\n", long, value, roffProse(sentence(flagUsage(f))))
	})
}

// sentence makes prose of the short description of an option.
func sentence(s string) string {
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// manExamples sets the examples of the help text: the command at a fixed width,
// what it does below it.
func manExamples(w io.Writer, text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(w, ".SH EXAMPLES\n")
	manLines(w, text)
}

// manLines writes lines that are indented in a help text, and not to be filled.
func manLines(w io.Writer, text string) {
	fmt.Fprintf(w, ".nf\n")
	for _, l := range strings.Split(strings.Trim(text, "\n"), "\n") {
		fmt.Fprintln(w, roff(strings.TrimPrefix(l, "  ")))
	}
	fmt.Fprintf(w, ".fi\n")
}

func manSeeAlso(w io.Writer, c *cobra.Command) {
	fmt.Fprintf(w, ".SH SEE ALSO\n")
	var names []string
	for _, o := range c.Root().Commands() {
		if !o.Hidden && o != c {
			names = append(names, manName(o))
		}
	}
	if c.HasParent() {
		names = append([]string{"fentry"}, names...)
	}
	for i, n := range names {
		end := ","
		if i == len(names)-1 {
			end = ""
		}
		fmt.Fprintf(w, ".BR %s (1)%s\n", roff(n), end)
	}
}

// manReasons lists the codes of functions that cannot be traced.
func manReasons() string {
	var b strings.Builder
	for _, r := range record.Reasons() {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(string(r.Code)), roffProse(r.Text))
	}
	return b.String()
}

// manKinds says what the compiler left at a function's entry, and how it was
// asked to.
func manKinds() string {
	var b strings.Builder
	for _, k := range []struct {
		kind record.Kind
		text string
	}{
		{record.KindFentryCall, "A call of __fentry__ in front of the prologue (-pg -mfentry)."},
		{record.KindNopMcount, "A nop in place of that call (-pg -mfentry -mnop-mcount -mrecord-mcount): " +
			"costs nothing while it is not traced."},
		{record.KindMcountCall, "A call of mcount behind the prologue (-pg)."},
		{record.KindPatchable, "Nops (-fpatchable-function-entry=5, =2 on arm64): cost nothing while not traced."},
		{record.KindXRay, "A sled of nops (clang -fxray-instrument)."},
		{record.KindPlain, "The function's own first instructions, which are moved."},
		{record.KindLibCall, "Calls of a library's function, by the linker's stub or directly (--libcalls)."},
	} {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(k.kind.String()), roffProse(k.text))
	}
	return b.String()
}

// roff escapes text for man(7): backslashes, hyphens that are to be typed, and
// control characters at the start of a line.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `~`, `\(ti`, `^`, `\(ha`, "`", `\(ga`, `'`, `\(aq`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

// roffProse escapes text that is filled, in lines below 80 characters.
func roffProse(s string) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		word = roff(word)
		if line != "" && len(line)+1+len(word) > 78 {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += strings.TrimPrefix(word, `\&`)
	}
	lines = append(lines, line)
	for i, l := range lines {
		if strings.HasPrefix(l, ".") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
