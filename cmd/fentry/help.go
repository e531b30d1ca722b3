package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newHelpCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "print help for a command",
		Long:  "help prints help for a command, or the list of commands.",
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || (len(args) > 0 && target == cmd.Root()) {
				return unknownCommand(cmd.Root(), args[0])
			}
			if len(rest) > 0 {
				return usagef(cmd, "unexpected operand %q", rest[0])
			}
			return target.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if len(args) == 0 {
				for _, c := range cmd.Root().Commands() {
					if c.IsAvailableCommand() && strings.HasPrefix(c.Name(), toComplete) {
						names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		DisableFlagsInUseLine: true,
	}
}

// printHelp writes the help of cmd to its output: what it is for, the
// synopsis, examples, options. Examples come before options because most
// people look for one to change.
func printHelp(cmd *cobra.Command, _ []string) {
	w := cmd.OutOrStdout()
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	fmt.Fprintf(w, "%s\n\nusage: %s\n", strings.TrimSpace(text), synopsis(cmd))
	if cmd.Example != "" {
		fmt.Fprintf(w, "\nExamples:\n%s\n", strings.TrimRight(cmd.Example, "\n"))
	}
	for _, g := range cmd.Groups() {
		title := "\n" + g.Title + "\n"
		for _, c := range cmd.Commands() {
			if c.GroupID == g.ID && (c.IsAvailableCommand() || c.Name() == "help") {
				fmt.Fprintf(w, "%s  %-12s %s\n", title, c.Name(), c.Short)
				title = ""
			}
		}
	}
	printFlags(w, "Options", cmd.LocalNonPersistentFlags())
	printFlags(w, "Options for every command", cmd.Root().PersistentFlags())
	if cmd.HasParent() {
		fmt.Fprintf(w, "\nMore: man fentry-%s\n", cmd.Name())
	} else {
		fmt.Fprintf(w, "\nUse \"fentry help COMMAND\" for more about a command.\n")
	}
}

func synopsis(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return "fentry COMMAND [options] [operands]"
	}
	return cmd.UseLine()
}

// printFlags writes one option a line, short and long form, then what it does.
func printFlags(w io.Writer, title string, set *pflag.FlagSet) {
	type row struct{ left, right string }
	var rows []row
	width := 0
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		r := row{flagForms(f), flagUsage(f)}
		rows = append(rows, r)
		width = max(width, len(r.left))
	})
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s:\n", title)
	for _, r := range rows {
		lines := wrap(r.right, helpWidth-width-4)
		fmt.Fprintf(w, "  %-*s  %s\n", width, r.left, lines[0])
		for _, l := range lines[1:] {
			fmt.Fprintf(w, "  %-*s  %s\n", width, "", l)
		}
	}
}

// flagForms returns "-D, --depth N" or "    --json".
func flagForms(f *pflag.Flag) string {
	s := "    --" + f.Name
	if f.Shorthand != "" {
		s = "-" + f.Shorthand + ", --" + f.Name
	}
	if name, _ := pflag.UnquoteUsage(f); name != "" && takesValue(f) {
		s += " " + name
	}
	return s
}

func takesValue(f *pflag.Flag) bool { return f.NoOptDefVal == "" }

// flagUsage is the option's description with its default, if that says
// anything.
func flagUsage(f *pflag.Flag) string {
	_, usage := pflag.UnquoteUsage(f)
	value := strings.Trim(f.DefValue, "[]") // of lists
	switch value {
	case "", "false", "0", "0s":
	default:
		if !strings.Contains(usage, "default") && !strings.HasPrefix(usage, value) {
			usage += fmt.Sprintf(" (default %s)", value)
		}
	}
	return usage
}

// helpWidth is how wide help text becomes, if words allow.
const helpWidth = 100

// wrap breaks text at blanks into lines of at most width characters.
func wrap(text string, width int) []string {
	var lines []string
	for _, part := range strings.Split(text, "\n") {
		line := ""
		for _, word := range strings.Fields(part) {
			if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
				lines = append(lines, line)
				line = ""
			}
			if line != "" {
				line += " "
			}
			line += word
		}
		lines = append(lines, line)
	}
	return lines
}
