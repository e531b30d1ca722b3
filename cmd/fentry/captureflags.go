package main

// What is captured of calls: record and patch share these options.

import (
	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/patch"
)

// captureFlags are the options that say which arguments and results are recorded.
type captureFlags struct {
	arguments, results []string
	args               string
	conditions         []string
	captured           fentry.Captured
}

// Values of --args, the default first.
const (
	argsNo   = "no"
	argsAuto = "auto"
)

func (c *captureFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVarP(&c.arguments, "argument", "A", nil, "record the arguments of functions that match a pattern, all or "+
		"some: `SPEC` is PAT or PAT@arg1/s,fparg1,stack3,%rdi/x32,name,req->hdr.len; with a condition, PAT@name>100, only such calls are "+
		"recorded (repeatable)")
	f.StringArrayVarP(&c.results, "retval", "R", nil, "record the results of functions that match `SPEC`: PAT or "+
		"PAT@retval/x; PAT@errno shows errno of those that fail (repeatable)")
	f.StringVar(&c.args, "args", argsNo, "record the arguments and results of functions: `WHICH` is auto, all that have debug "+
		"information, or no, those of -A and -R")
	f.StringArrayVar(&c.conditions, "if", nil, "of functions that have such an argument, record only calls whose arguments "+
		"meet `CONDITION`, such as 'arg1 > 100', 'path ~ /etc/*' or 'req->len > 100' (repeatable: all must)")
}

// captures are which arguments and results are recorded by a plan.
func (c *captureFlags) captures(cmd *cobra.Command, o *patch.Options) (out fentry.Captures, err error) {
	if c.args != argsNo && c.args != argsAuto {
		return out, usagef(cmd, "--args: %q is neither %s nor %s", c.args, argsAuto, argsNo)
	}
	out.Auto, out.Captured = c.args == argsAuto, &c.captured
	for _, g := range []struct {
		flag  string
		given []string
		out   *[]arguments.Spec
	}{{"argument", c.arguments, &out.Arguments}, {"retval", c.results, &out.Results}} {
		for _, text := range g.given {
			s, err := arguments.ParseSpec(text)
			if err != nil {
				return out, usagef(cmd, "--%s: %v", g.flag, err)
			}
			*g.out = append(*g.out, s)
		}
	}
	if out.Conditions, err = parseConditions(cmd, c.conditions); err != nil {
		return out, err
	}
	if len(out.Conditions) > 0 && !out.Auto && len(out.Arguments) == 0 {
		return out, usagef(cmd, "--if requires --argument or --args=auto, which say of which functions arguments are looked at")
	}
	if (out.Auto || len(out.Arguments)+len(out.Results) > 0) &&
		(o.Tracer != patch.FunctionGraph && o.Tracer != patch.Function || o.Threshold != 0) {
		return out, usagef(cmd, "--argument, --retval and --args require the tracer function_graph or function, without --threshold")
	}
	return out, nil
}
