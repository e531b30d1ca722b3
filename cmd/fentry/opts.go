package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// withDefaultOptions puts the options of $FENTRY_OPTS behind the command name,
// in front of the user's own, which therefore win. One variable serves all
// commands: options the command at hand does not have are left out, options no
// command has are an error.
func withDefaultOptions(root *cobra.Command, args []string, env string) ([]string, error) {
	words, err := splitWords(env)
	if err != nil {
		return nil, fmt.Errorf("FENTRY_OPTS: %w", err)
	}
	if len(words) == 0 {
		return args, nil
	}
	if len(args) > 0 && strings.HasPrefix(args[0], "__") {
		return args, nil // completion and man pages depend on nobody's taste
	}
	cmd, rest, err := root.Find(args)
	if err != nil || cmd == root {
		return args, nil
	}
	var defaults []string
	for len(words) > 0 {
		n, name := 1, words[0]
		if !strings.HasPrefix(name, "-") || name == "-" || name == "--" {
			return nil, fmt.Errorf("FENTRY_OPTS: %q is not an option", name)
		}
		known := findOption(root, name)
		if known == nil {
			return nil, fmt.Errorf("FENTRY_OPTS: no command has an option %s", name)
		}
		if takesValue(known) && !hasValue(name) {
			if len(words) < 2 {
				return nil, fmt.Errorf("FENTRY_OPTS: option %s needs a value", name)
			}
			n = 2
		}
		if lookupOption(cmd, name) != nil {
			defaults = append(defaults, words[:n]...)
		}
		words = words[n:]
	}
	var path []string
	for c := cmd; c != root; c = c.Parent() {
		path = append([]string{c.Name()}, path...)
	}
	return append(append(path, defaults...), rest...), nil
}

// findOption looks an option up in the root and in all its commands.
func findOption(cmd *cobra.Command, word string) *pflag.Flag {
	if f := lookupOption(cmd, word); f != nil {
		return f
	}
	for _, c := range cmd.Commands() {
		if f := findOption(c, word); f != nil {
			return f
		}
	}
	return nil
}

func lookupOption(cmd *cobra.Command, word string) *pflag.Flag {
	if long, ok := strings.CutPrefix(word, "--"); ok {
		long, _, _ = strings.Cut(long, "=")
		return cmd.Flag(long)
	}
	short := word[1:2]
	if f := cmd.Flags().ShorthandLookup(short); f != nil {
		return f
	}
	return cmd.Root().PersistentFlags().ShorthandLookup(short)
}

// hasValue tells whether the word of an option that takes a value holds it.
func hasValue(word string) bool {
	if strings.HasPrefix(word, "--") {
		return strings.Contains(word, "=")
	}
	return len(word) > 2
}

// splitWords cuts s at blanks; '...' and "..." keep blanks, \ quotes one
// character outside of '...'.
func splitWords(s string) ([]string, error) {
	var words []string
	var word strings.Builder
	in, quote := false, rune(0)
	escaped := false
	for _, r := range s {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			in, escaped = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			in, quote = true, r
		case r == ' ' || r == '\t' || r == '\n':
			if in {
				words = append(words, word.String())
				word.Reset()
				in = false
			}
		default:
			in = true
			word.WriteRune(r)
		}
	}
	if quote != 0 || escaped {
		return nil, fmt.Errorf("unfinished quotation: %s", s)
	}
	if in {
		words = append(words, word.String())
	}
	return words, nil
}

// plainFlagError says in the users' words what the option parser disliked.
func plainFlagError(err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		if unknown.GetSpecifiedShortnames() != "" {
			return fmt.Errorf("unknown option -%s", unknown.GetSpecifiedName())
		}
		return fmt.Errorf("unknown option --%s", unknown.GetSpecifiedName())
	}
	var missing *pflag.ValueRequiredError
	if errors.As(err, &missing) {
		if missing.GetSpecifiedShortnames() != "" {
			return fmt.Errorf("option -%s needs a value", missing.GetSpecifiedName())
		}
		return fmt.Errorf("option --%s needs a value", missing.GetSpecifiedName())
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		why := invalid.Unwrap()
		var num *strconv.NumError
		if errors.As(why, &num) {
			why = fmt.Errorf("not a number in range: %w", num.Err)
			if errors.Is(num.Err, strconv.ErrSyntax) {
				why = errors.New("not a number")
			}
		}
		return fmt.Errorf("option --%s %s: %w", invalid.GetFlag().Name, invalid.GetValue(), why)
	}
	return err
}
