package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// What a run of an installed program may take, as a multiple of the untraced one: with all functions recorded, and as
// record does it by default.
const (
	wantedAll     = 3.5
	wantedDefault = 2.0
)

// An installed program, and what it is to do.
type installed struct {
	argv []string
	made string // a directory that a run makes
	all  bool   // there is a bound with all functions, too
}

// installed prints what recording does to programs that no compiler has prepared, with all of their functions and with
// the bound that record sets by default.
func (b *bench) installed() error {
	programs, err := b.installedPrograms()
	if err != nil {
		return err
	}
	for _, p := range programs {
		if _, err := os.Stat(p.argv[0]); err != nil {
			fmt.Println("not measured:", err)
			continue
		}
		if err := b.installedProgram(p); err != nil {
			return err
		}
	}
	return nil
}

// installedPrograms are an interpreter that runs a short script, interpreters that do nothing but compute, git, which shows the changes of a history, compilers, and cmake, which executes
// dozens of short programs.
func (b *bench) installedPrograms() ([]installed, error) {
	var files [3]string
	for i, name := range []string{"script.py", "bench.py", "bench.pl"} {
		var err error
		if files[i], err = b.extract(name); err != nil {
			return nil, err
		}
	}
	size, commits := "10", 2000
	if b.quick {
		size, commits = "1", 20
	}
	repository, project := filepath.Join(b.dir, "repository"), filepath.Join(b.dir, "project")
	if err := os.Mkdir(project, 0o777); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"CMakeLists.txt": "cmake_minimum_required(VERSION 3.10)\nproject(p C CXX)\nadd_executable(p p.c)\n",
		"p.c":            "int main(void) { return 0; }\n",
		"r.cc":           "#include <regex>\nbool f(const char *s) { return std::regex_match(s, std::regex(\"a+b\")); }\n",
	} {
		if err := os.WriteFile(filepath.Join(project, name), []byte(text), 0o666); err != nil {
			return nil, err
		}
	}
	build, object, source := filepath.Join(project, "build"), filepath.Join(b.dir, "o.o"), filepath.Join(project, "r.cc")
	all := []installed{
		{argv: []string{"/usr/bin/python3", files[0]}, all: true},
		{argv: []string{"/usr/bin/python3", files[1], size}, all: true},
		{argv: []string{"/usr/bin/perl", files[2], size}, all: true},
		{argv: []string{"/usr/bin/g++", "-O2", "-c", "-o", object, source}},
		{argv: []string{"/usr/bin/clang++", "-O2", "-c", "-o", object, source}},
		{argv: []string{"/usr/bin/cmake", "-S", project, "-B", build}, made: build},
	}
	if _, err := os.Stat("/usr/bin/git"); err == nil {
		if err := b.history(repository, commits); err != nil {
			return nil, err
		}
	}
	return append(all, installed{argv: []string{"/usr/bin/git", "-C", repository, "log", "-p", "all"}}), nil
}

// history makes a git repository of so many changes of a file.
func (b *bench) history(dir string, commits int) error {
	if err := b.tool("git", "init", "-q", dir); err != nil {
		return err
	}
	var in bytes.Buffer
	for i := range commits {
		var text bytes.Buffer
		for line := range 400 {
			fmt.Fprintf(&text, "line %d as of change %d\n", line, i-(i-line)%97)
		}
		fmt.Fprintf(&in, "commit refs/heads/all\ncommitter A <a@example.org> %d +0000\ndata 2\nc\nM 644 inline file\ndata %d\n%s\n", 1e9+i, text.Len(), &text)
	}
	c := exec.CommandContext(b.ctx, "git", "-C", dir, "fast-import", "--quiet")
	c.Stdin = &in
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("git fast-import: %w: %s", err, out)
	}
	return nil
}

func (b *bench) installedProgram(p installed) error {
	argv, data := p.argv, filepath.Join(b.dir, "installed.data")
	clean := func() error {
		err := errors.Join(os.RemoveAll(data), os.RemoveAll(data+".old"))
		if p.made != "" {
			err = errors.Join(err, os.RemoveAll(p.made))
		}
		return err
	}
	var vs []*variant
	events := map[string]int64{}
	add := func(name string, options ...string) {
		v := &variant{name: name, job: job{argv: argv}, clean: clean}
		if options != nil {
			v.job.argv = append(append([]string{b.fentry, "record", "-q", "-o", data}, options...), argv...)
			v.after = func() (err error) {
				_, events[name], err = b.traceSize(data)
				return err
			}
		}
		vs = append(vs, v)
	}
	add("untraced")
	add("fentry record", "--plain=auto")
	add("fentry record --overhead no", "--overhead", "no")
	if err := b.inTurn(vs, 0); err != nil {
		return err
	}
	base, _ := middle(vs[0].samples, wallOf)
	fmt.Printf("%s; wall time, with fentry's own start and end\n", strings.Join(argv, " "))
	all := ""
	if p.all {
		all = fmt.Sprintf("<= %.1f", wantedAll)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "wall s\t(min)\tx\twanted\tevents\t\t")
	for i, v := range vs {
		if len(v.samples) == 0 {
			continue
		}
		wall, least := middle(v.samples, wallOf)
		wanted := []string{"", fmt.Sprintf("<= %.1f", wantedDefault), all}[i]
		fmt.Fprintf(w, "%.3f\t%.3f\t%.2f\t%s\t%d\t %s\t\n", wall, least, wall/base, wanted, events[v.name], v.name)
	}
	return w.Flush()
}
