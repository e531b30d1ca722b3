package main

import (
	"fmt"

	"github.com/fentry-dev/fentry/internal/machine"
	"github.com/fentry-dev/fentry/internal/syscalls"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/symbol"
)

// listedSyscall is a line of list --syscalls --json.
type listedSyscall struct {
	Address   string `json:"address"`
	Function  string `json:"function"`
	Number    *int   `json:"number,omitempty"` // absent if it is an argument
	Name      string `json:"name,omitempty"`
	Traceable bool   `json:"traceable"`
	Reason    string `json:"reason,omitempty"`
}

// listSyscalls lists the system calls of one image: those that can be recorded, or all of them.
func (c *listCmd) listSyscalls(a *app, out *output, path string) error {
	im, err := openImage(path)
	if err != nil {
		return err
	}
	defer im.close()
	calls, err := im.syscalls(a.symbols())
	if err != nil {
		return err
	}
	var t table
	t.column("CALL", false)
	t.column("ADDRESS", true)
	t.column("FUNCTION", false)
	if c.long {
		t.column("REASON", false)
	}
	enc := jsonLines(out.Writer)
	traceable, names := uint64(0), syscalls.MachineOf(machine.Name(im.Header.Machine))
	for i := range calls {
		s := &calls[i]
		if s.Reason == "" {
			traceable++
		} else if !c.long {
			continue
		}
		l := listedSyscall{
			Address: fmt.Sprintf("%#x", s.Addr), Function: s.Name, Traceable: s.Reason == "", Reason: string(s.Reason),
		}
		if l.Function == "" {
			l.Function = symbol.NameAt(s.Func)
		}
		if s.Number >= 0 {
			l.Number, l.Name = &s.Number, names.Name(uint64(s.Number))
		}
		if c.json {
			if err := enc.Encode(l); err != nil {
				return err
			}
			continue
		}
		name := l.Name
		if name == "" {
			name = "-"
		}
		cells := []string{name, l.Address, c.demangle.name(l.Function)}
		if c.long {
			cells = append(cells, l.Reason)
		}
		t.row(cells...)
	}
	if !c.json && len(calls) > 0 {
		if err := t.write(out, out.paint); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	a.notef("%s: %s of %s can be recorded", path, grouped(traceable),
		plural(uint64(len(calls)), "system call", "system calls"))
	return nil
}

// syscalls finds the system calls of the image.
func (im *image) syscalls(o symbol.Options) (calls []record.Syscall, err error) {
	o.Path = im.file.Path
	if im.table, err = symbol.NewWith(im.File, o); err == nil {
		calls, err = record.Syscalls(im.File, im.table)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", im.file.Path, err)
	}
	return calls, nil
}
