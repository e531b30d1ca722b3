package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fentry-dev/fentry/names"
	"github.com/fentry-dev/fentry/trace"
)

// maketrace is the script command "maketrace DIR FILE": it writes a trace of
// what FILE says, one thing a line:
//
//	command prog arg ...    what ran
//	uncounted FROM TO      in this time, ns after the start, nobody counted what was lost; TO 0: it had no end
//	overwritten N          policy overwrite: so many events
//	task PID TID COMM       a thread; COMM may contain blanks
//	child PID TID PPID COMM  a forked one
//	program PID NS PPID ARG ...   the process begins to run a program
//	title PID NS TEXT       the process was seen to have a title
//	exit PID NS STATUS SOURCE     it was seen to have ended; -N: by signal N
//	sched PID TID FROM TO [[?]FROM-TO ...]  the thread was off a processor; with ?: it is not known what it did
//	switches REASON         no recorder saw that
//	TID NS > FUNCTION       an entry, NS ns after the start
//	TID NS < FUNCTION       an exit
//	TID NS resync N         N frames were skipped
//	TID NS lost N
//	TID NS mark N [TEXT]
//	TID NS comm NAME
//	TID NS sys NUMBER [ARG ...]  a system call, of amd64; "TEXT" is a pointer to it
//	TID NS ret RESULT
//	TID NS signal N
//	TID NS end
//	TID NS start            a program starts
//	TID NS fork             the first event of a forked one
func maketrace(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: maketrace DIR FILE")
	}
	ts.Check(writeTrace(ts.MkAbs(args[0]), ts.ReadFile(args[1])))
}

// tellProcess notes what a recorder saw of a process.
func tellProcess(info *trace.Info, what string, pid int, at uint64, words []string) {
	var p *trace.InfoProcess
	for i := range info.Processes {
		if info.Processes[i].PID == pid {
			p = &info.Processes[i]
		}
	}
	if p == nil {
		info.Processes = append(info.Processes, trace.InfoProcess{PID: pid, Seen: at})
		p = &info.Processes[len(info.Processes)-1]
	}
	if what == "title" {
		p.Titles = append(p.Titles, trace.InfoTitle{Monotonic: at, Text: strings.Join(words, " ")})
		return
	}
	p.Ended, p.Source = at, trace.ExitSource(words[1])
	if p.ExitStatus, _ = strconv.Atoi(words[0]); p.ExitStatus < 0 {
		p.Signal, p.ExitStatus = -p.ExitStatus, -1
	}
}

// writeSched writes when a thread was off a processor.
func writeSched(w *trace.Writer, start uint64, f []string) error {
	var id trace.TaskID
	var from, to uint64
	if _, err := fmt.Sscan(strings.Join(f[:min(4, len(f))], " "), &id.PID, &id.TID, &from, &to); err != nil {
		return err
	}
	var off []trace.Off
	for _, s := range f[4:] {
		var o trace.Off
		s, o.Unknown = strings.CutPrefix(s, "?")
		if _, err := fmt.Sscanf(s, "%d-%d", &o.From, &o.To); err != nil {
			return err
		}
		o.From, o.To = o.From+start, o.To+start
		off = append(off, o)
	}
	return w.WriteSched(id, start+from, start+to, off)
}

// sysArgs are the arguments of a system call: numbers, and strings with what is there.
func sysArgs(words []string) (args []uint64, data []trace.Data, err error) {
	for i, w := range words {
		v, err := strconv.ParseInt(w, 0, 64)
		if s, text := strings.CutPrefix(w, `"`); text {
			s = strings.TrimSuffix(s, `"`)
			v, err = int64(0x7000+0x1000*i), nil
			data = append(data, trace.Data{Arg: i, Flags: trace.DataString, Asked: uint32(len(s)), Address: uint64(v), Bytes: []byte(s)})
		}
		if err != nil {
			return nil, nil, err
		}
		args = append(args, uint64(v))
	}
	return args, data, nil
}

const testImage = trace.ImageID(0x1122334455667788)

func writeTrace(dir, spec string) error {
	const start = 1 << 40
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	var events bytes.Buffer
	head := trace.Header{Counter: start, Monotonic: 5_000_000_000, CounterHz: 1e9}
	for line := range strings.Lines(spec) {
		var from, to uint64
		if n, _ := fmt.Sscanf(line, "uncounted %d %d", &from, &to); n == 2 {
			head.Uncounted, head.UncountedFrom = 1, start+from
			if to != 0 {
				head.UncountedTo = start + to
			}
		}
		if n, _ := fmt.Sscanf(line, "overwritten %d", &head.Overwritten); n == 1 {
			head.Policy = trace.PolicyOverwrite
		}
	}
	w, err := trace.NewWriter(&events, head)
	if err != nil {
		return err
	}
	info := trace.Info{
		Writer: "fentry test", Command: []string{"./prog"}, Start: time.Unix(1_800_000_000, 0).UTC(),
		Duration: time.Second, Tracer: "function_graph", PID: 100,
		Clock: trace.InfoClock{Hz: 1e9}, Images: []trace.Image{{ID: testImage, Path: "/bin/prog", BuildID: "c0ffee"}},
	}
	sym := names.Table{Path: "/bin/prog", Image: uint64(testImage)}
	ids := map[string]uint32{}
	id := func(name string) uint32 {
		if ids[name] == 0 {
			ids[name] = uint32(len(ids) + 1)
			addr := 0x401000 + 0x100*uint64(len(ids))
			sym.Funcs = append(sym.Funcs, names.Func{ID: ids[name], Addr: addr, Size: 0x40, Site: addr, Kind: "fentry-call", Name: name})
		}
		return ids[name]
	}
	tasks := map[string]*trace.TaskWriter{}
	var order []*trace.TaskWriter
	for n, line := range strings.Split(strings.TrimSpace(spec), "\n") {
		f := strings.Fields(line)
		switch {
		case len(f) == 0, f[0] == "uncounted", f[0] == "overwritten":
			continue
		case f[0] == "command":
			info.Command = f[1:]
			continue
		case f[0] == "program":
			pid, _ := strconv.Atoi(f[1])
			ns, _ := strconv.ParseUint(f[2], 10, 63)
			im := trace.Image{ID: testImage, Command: f[4:]}
			im.Parent, _ = strconv.Atoi(f[3])
			if err := w.WriteProgram(trace.TaskID{PID: pid, TID: pid, Key: uint64(pid)}, start+ns, im); err != nil {
				return err
			}
			continue
		case f[0] == "sched":
			if err := writeSched(w, start, f[1:]); err != nil {
				return err
			}
			continue
		case f[0] == "switches":
			info.Switches = &trace.InfoSwitches{Reason: strings.Join(f[1:], " ")}
			continue
		case f[0] == "title" || f[0] == "exit":
			pid, _ := strconv.Atoi(f[1])
			ns, _ := strconv.ParseUint(f[2], 10, 63)
			tellProcess(&info, f[0], pid, 5_000_000_000+ns, f[3:])
			continue
		case f[0] == "child":
			pid, _ := strconv.Atoi(f[1])
			tid, _ := strconv.Atoi(f[2])
			parent, _ := strconv.Atoi(f[3])
			tasks[f[2]] = w.Task(trace.TaskID{PID: pid, TID: tid, Key: uint64(tid), Image: testImage,
				Comm: strings.Join(f[4:], " "), ParentPID: parent, ParentTID: parent})
			order = append(order, tasks[f[2]])
			continue
		case f[0] == "task":
			pid, _ := strconv.Atoi(f[1])
			tid, _ := strconv.Atoi(f[2])
			tasks[f[2]] = w.Task(trace.TaskID{PID: pid, TID: tid, Key: uint64(tid), Image: testImage, Comm: strings.Join(f[3:], " ")})
			order = append(order, tasks[f[2]])
			continue
		}
		k := tasks[f[0]]
		if k == nil || len(f) < 3 {
			return fmt.Errorf("line %d: %s", n+1, line)
		}
		ns, err := strconv.ParseUint(f[1], 10, 63)
		if err != nil {
			return err
		}
		num := uint64(0)
		if len(f) > 3 {
			num, _ = strconv.ParseUint(f[3], 10, 64)
		}
		switch f[2] {
		case ">":
			k.Enter(start+ns, id(f[3]))
		case "<":
			k.Exit(start+ns, id(f[3]))
		case "resync":
			k.Resync(start+ns, num)
		case "lost":
			k.Lost(start+ns, num)
			info.Lost += num
		case "mark":
			k.Mark(start+ns, num, strings.Join(f[min(4, len(f)):], " "))
		case "comm":
			k.Comm(start+ns, f[3])
		case "sys":
			args, data, err := sysArgs(f[4:])
			if err != nil {
				return fmt.Errorf("line %d: %w", n+1, err)
			}
			k.SysEnter(start+ns, num, args, data...)
		case "ret":
			result, err := strconv.ParseInt(f[3], 0, 64)
			if err != nil {
				return fmt.Errorf("line %d: %w", n+1, err)
			}
			k.SysExit(start+ns, uint64(result))
		case "signal":
			k.Signal(start+ns, trace.Signal{Number: num})
		case "end":
			k.End(start + ns)
		case "start":
			k.Start(start + ns)
		case "fork":
			k.Fork(start + ns)
		default:
			return fmt.Errorf("line %d: %s", n+1, line)
		}
	}
	for _, k := range order {
		if err := k.Flush(); err != nil {
			return err
		}
	}
	info.Images[0].Sites = len(ids)
	if err := trace.WriteInfo(dir, &info); err != nil {
		return err
	}
	var symText bytes.Buffer
	if err := names.Write(&symText, &sym); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, testImage.String()+trace.SymExt), symText.Bytes(), 0o666); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, trace.EventsFile), events.Bytes(), 0o666)
}
