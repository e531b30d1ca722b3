package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// operator is a word with which the shell's part of a line begins. Quoted ones may have such characters in the middle.
var operator = regexp.MustCompile(`^([|&;]|[0-9]?[<>])|;$`)

// parses tells what is wrong with a documented command line, "" if nothing: its
// command must exist and have its options.
func parses(line string) string {
	words, err := splitWords(line)
	if err != nil {
		return err.Error()
	}
	for i, w := range words {
		// The rest is the shell's.
		if operator.MatchString(w) {
			words = words[:i]
			break
		}
	}
	a := &app{lookupEnv: func(string) (string, bool) { return "", false }}
	root := newRootCmd(a, "")
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(words[1:])
	switch {
	case err != nil:
		return err.Error()
	case cmd == root && len(words) > 1 && words[1] != "-h" && words[1] != "COMMAND":
		return "no command " + words[1]
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err.Error()
	}
	return ""
}

// What help texts and documents tell people to type can be typed.
func TestDocumentedCommands(t *testing.T) {
	n := 0
	check := func(where, line string) {
		n++
		if wrong := parses(line); wrong != "" {
			t.Errorf("%s: %s: %s", where, line, wrong)
		}
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, l := range strings.Split(c.Example, "\n") {
			line, _, _ := strings.Cut(strings.TrimSpace(l), "   ")
			if strings.HasPrefix(line, "fentry ") {
				check(c.CommandPath()+" -h", line)
			}
		}
		for _, s := range c.Commands() {
			walk(s)
		}
	}
	walk(newRootCmd(&app{lookupEnv: func(string) (string, bool) { return "", false }}, ""))

	span := regexp.MustCompile("`(fentry [^`]+)`")
	block := regexp.MustCompile(`(?m)^    (?:\$ )?(fentry .+)$`)
	files, err := filepath.Glob("../../examples/*/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "../../README.md", "../../CHANGELOG.md", "../../docs/rationale.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, re := range []*regexp.Regexp{span, block} {
			for _, m := range re.FindAllStringSubmatch(string(text), -1) {
				line, _, _ := strings.Cut(m[1], " #")
				check(file, line)
			}
		}
	}
	if n < 60 {
		t.Errorf("only %d command lines found", n)
	}
}
