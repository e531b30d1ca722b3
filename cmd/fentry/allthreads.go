package main

import (
	"errors"
	"strconv"

	"github.com/spf13/pflag"
)

// allThreads is what commands with -p do in any case, and what other tools have to be told: people, and their scripts, say it.
type allThreads struct{}

func addAllThreads(f *pflag.FlagSet) {
	f.Var(allThreads{}, "all-threads", "record all threads of the processes of -p, those that they have and those to "+
		"come")
	f.Lookup("all-threads").NoOptDefVal = "true"
}

func (allThreads) Type() string   { return "bool" }
func (allThreads) String() string { return "true" }

func (allThreads) Set(s string) error {
	on, err := strconv.ParseBool(s)
	if err == nil && !on {
		err = errors.New("all threads of a process are recorded; --tid of report, replay and graph chooses some of them")
	}
	return err
}
