package main

import (
	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
)

// demangleFlag is the option --demangle. It is a pflag.Value.
type demangleFlag struct{ style symbol.Style }

func (d *demangleFlag) String() string { return d.style.String() }
func (d *demangleFlag) Type() string   { return "STYLE" }

func (d *demangleFlag) Set(s string) (err error) {
	d.style, err = symbol.ParseStyle(s)
	return err
}

func (d *demangleFlag) add(cmd *cobra.Command) {
	cmd.Flags().Var(d, "demangle", "show C++, Rust and OCaml names as `STYLE`: simple, full (with parameters, spelled out) or no")
}

// name returns a raw symbol as it is shown; who prints it makes it safe.
func (d *demangleFlag) name(raw string) string {
	return symbol.Demangle(raw, d.style)
}

// nameFlags say how names of functions in traces are shown.
type nameFlags struct {
	demangle demangleFlag
	image    bool
}

func (n *nameFlags) add(cmd *cobra.Command) {
	n.demangle.add(cmd)
	cmd.Flags().BoolVar(&n.image, "image", false, "show which program or library a function is in: malloc [libc.so.6]")
}

func (n *nameFlags) options() trace.Options {
	return trace.Options{Name: n.demangle.name, Images: n.image}
}
