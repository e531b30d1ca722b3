package tables

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// formatNames are what tracefs calls some system calls: by the kernel's function.
var formatNames = map[string]string{
	"fstat": "newfstat", "lstat": "newlstat", "stat": "newstat", "sendfile": "sendfile64", "umount2": "umount",
	"uname": "newuname",
}

// A param is an argument as a kernel describes it.
type param struct{ ctype, name string }

// readFormats returns the arguments of each system call.
func readFormats() (map[string][]param, error) {
	all := map[string][]param{}
	err := lines(formatsText, func(line string) error {
		call, rest, ok := strings.Cut(line, ":")
		if !ok {
			return fmt.Errorf("%q: no colon", line)
		}
		all[call] = []param{}
		for _, s := range strings.Split(rest, ";") {
			if s = strings.TrimSpace(s); s == "" {
				continue
			}
			i := strings.LastIndexAny(s, " *")
			ctype := strings.ReplaceAll(strings.TrimSpace(s[:i+1]), "* *", "**")
			all[call] = append(all[call], param{ctype, strings.TrimLeft(s[i+1:], "_")})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("formats.txt: %w", err)
	}
	return all, nil
}

// argument is the form of an argument in calls.txt.
var argument = regexp.MustCompile(`^[<>&]?\w+(?:\((\w+)\))?(?:\[(?:\*?\d|ret)\])?(?:\.\.\.)?$`)

// makeCalls returns one line for each system call that a machine has, by name: name, number on amd64 and arm64,
// classes, result, and of each argument how it is shown, its name and its type; between tabs.
func makeCalls(known [2]map[string]int64, groups map[string]bool) (string, error) {
	formats, err := readFormats()
	if err != nil {
		return "", err
	}
	texts := map[string]string{}
	err = lines(callsText, func(line string) error {
		head, args, ok := strings.Cut(line, " :")
		f := strings.Fields(head)
		if !ok || len(f) != 3 || texts[f[0]] != "" {
			return fmt.Errorf("%q: want name, classes, result and arguments, once", line)
		}
		t, err := makeCall(f, strings.Fields(args), formats, groups)
		texts[f[0]] = t
		return err
	})
	if err != nil {
		return "", fmt.Errorf("calls.txt: %w", err)
	}
	numbers := map[string]constant{}
	for i := range known {
		for name := range known[i] {
			if s, ok := strings.CutPrefix(name, "SYS_"); ok && s != "ARCH_SPECIFIC_SYSCALL" {
				numbers[strings.ToLower(s)], _ = lookup(known, name)
			}
		}
	}
	var out []string
	for name, c := range numbers {
		rest, ok := texts[name]
		if !ok {
			rest, _ = makeCall([]string{name, "-", "d"}, guess(formats[name]), formats, groups)
		}
		delete(texts, name)
		out = append(out, fmt.Sprintf("%s\t%s\t%s\t%s\n", name, c.text(0), c.text(1), rest))
	}
	for name := range texts {
		return "", fmt.Errorf("calls.txt: %s is not in golang.org/x/sys/unix", name)
	}
	slices.Sort(out)
	return strings.Join(out, ""), nil
}

// guess shows the arguments of a call that calls.txt does not have by their types alone.
func guess(params []param) (args []string) {
	for _, p := range params {
		switch {
		case strings.Contains(p.ctype, "*"):
			args = append(args, "ptr")
		case p.ctype == "int":
			args = append(args, "d")
		default:
			args = append(args, "x")
		}
	}
	return args
}

func makeCall(head, args []string, formats map[string][]param, groups map[string]bool) (string, error) {
	key := head[0]
	if s, ok := formatNames[key]; ok {
		key = s
	}
	params, known := formats[key]
	text := head[1] + "\t" + head[2]
	for i, arg := range args {
		m := argument.FindStringSubmatch(arg)
		if m == nil {
			return "", fmt.Errorf("%s: %q: not an argument", head[0], arg)
		}
		if m[1] != "" && !groups[m[1]] {
			return "", fmt.Errorf("%s: no group %q", head[0], m[1])
		}
		p := param{"long", fmt.Sprintf("arg%d", i+1)}
		if i < len(params) {
			p = params[i]
		}
		text += fmt.Sprintf("\t%s|%s|%s", arg, p.name, p.ctype)
	}
	open := len(args) > 0 && strings.HasSuffix(args[len(args)-1], "...")
	if known && len(params) != len(args) && !open {
		return "", fmt.Errorf("%s: %d arguments, the kernel has %d", head[0], len(args), len(params))
	}
	if open { // the others are a kernel's business
		for i := len(args); i < len(params); i++ {
			text += fmt.Sprintf("\tmore|%s|%s", params[i].name, params[i].ctype)
		}
	}
	return text, nil
}
