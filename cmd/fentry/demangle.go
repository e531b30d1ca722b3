package main

import (
	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/symbol"
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
