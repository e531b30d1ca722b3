package main

import (
	"bytes"
	"debug/elf"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/session"
)

// emulation is what runs a program of another machine: what the user says, else
// what is found.
func (c *recordCmd) emulation(cmd *cobra.Command, p *program) ([]string, error) {
	if p.machine == elf.EM_NONE {
		return nil, nil
	}
	if cmd.Flags().Changed("emulator") {
		words, err := splitWords(c.emulator)
		if err == nil && len(words) == 0 {
			err = fmt.Errorf("no command given")
		}
		if err != nil {
			return nil, usagef(cmd, "--emulator: %v", err)
		}
		return words, nil
	}
	words, err := session.FindEmulator(p.machine, p.interp)
	if err != nil {
		return nil, recordError(fmt.Errorf("%s: %w; or name another emulator with --emulator", p.path, err))
	}
	return words, nil
}

// interpreter is the path of the program's dynamic loader, "" if it has none.
func interpreter(f *elfio.File) string {
	const longest = 4096 // PATH_MAX
	for _, pr := range f.Progs {
		if pr.Type == elf.PT_INTERP && pr.Filesz <= longest {
			b, err := f.Bytes(pr.Vaddr, int(pr.Filesz))
			if err != nil {
				return ""
			}
			b, _, _ = bytes.Cut(b, []byte{0})
			return string(b)
		}
	}
	return ""
}
