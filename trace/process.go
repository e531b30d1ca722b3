package trace

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Processes. Every trace says which programs a process ran, with which arguments, because the runtime announces itself
// whenever it starts; a forked child runs what its parent ran. What only somebody outside sees, titles that a process
// gives itself and how it ended, is in info.json, as far as a recorder was there to see it. Process ids are used again,
// so tasks with the same one belong to one process unless the recorder has seen the first one end between them.

// A Process is a process of the trace: its threads, and what is known about it.
type Process struct {
	Index int // position in Trace.Processes
	PID   int
	// ParentPID is the process that forked it or, for one whose parent was not traced, its parent when it started a
	// traced program; 0 if unknown.
	ParentPID int
	// Parent is that process, nil if it is not in the trace.
	Parent   *Process
	Children []*Process // by Start
	Tasks    []*Task    // by Start
	Start    int64      // time of the first event, in ns since the trace's start
	// Programs are those that it started, oldest first. A forked child has none before its own first exec.
	Programs []Program
	// Titles are what it called itself afterwards (setproctitle), oldest first, as seen at the time: a title can have
	// been there before, and others in between.
	Titles []Title
	// Exit says how it ended, nil if that is not known.
	Exit *ProcessExit
}

// A Program is a traced program that a process executed.
type Program struct {
	Time  int64 // in ns since the trace's start
	Image int   // position in Trace.Images
	// Args is the argument vector. At most 4 KiB of it are kept, and at most 16 MiB of all of a trace: Cut says that
	// there was more.
	Args []string
	Cut  bool
}

// A Title is what a process called itself.
type Title struct {
	Time int64 // when the recorder saw it, in ns since the trace's start
	Text string
}

// A ProcessExit is how a process ended.
type ProcessExit struct {
	Time   int64          // when the recorder saw it
	Status int            // the argument of exit; -1 if a signal ended the process
	Signal syscall.Signal // 0 if none
	Source ExitSource
}

// An ExitSource is how an exit status came to be known.
type ExitSource string

// Sources of exit statuses.
const (
	ExitWaited ExitSource = "wait"  // it was the recorder's child
	ExitPidfd  ExitSource = "pidfd" // the kernel told, by PIDFD_GET_INFO (Linux 6.15)
	ExitProc   ExitSource = "proc"  // from /proc, before the parent had waited for it
)

// String returns the status as a shell has it, or "signal N".
func (e *ProcessExit) String() string {
	if e.Signal != 0 {
		return "signal " + strconv.Itoa(int(e.Signal))
	}
	return strconv.Itoa(e.Status)
}

// Command returns what the process was at a time, in ns since the trace's start: the last title it had given itself by
// then, or the arguments of the program it ran, its own or the one it was forked with. title says which of the two:
// args then has one element. args is nil if nothing is known.
func (p *Process) Command(at int64) (args []string, title bool) {
	// A chain of forks is no longer than the trace has processes, as parents begin earlier.
	for ; p != nil; p = p.Parent {
		since := int64(-1 << 63)
		for i := range p.Programs {
			if g := &p.Programs[i]; i == 0 || g.Time <= at {
				args, since = g.Args, g.Time
			}
		}
		for i := range p.Titles {
			if t := &p.Titles[i]; t.Time <= at && t.Time >= since {
				args, title = []string{t.Text}, true
			}
		}
		if args != nil {
			return args, title
		}
		at = min(at, p.Start)
	}
	return nil, false
}

// CommandLine returns what the process was at a time, as [Process.Command] does, in one line: arguments as they would
// be typed, a title as it is. It may contain anything the program has put there.
func (p *Process) CommandLine(at int64) string {
	args, title := p.Command(at)
	if title {
		return args[0]
	}
	return QuoteArgs(args)
}

// QuoteArgs joins arguments the way they would be typed to a shell.
func QuoteArgs(args []string) string {
	out := make([]string, len(args))
	for i, s := range args {
		out[i] = s
		if s == "" || strings.ContainsAny(s, " \t\n\"'\\$`*?[]<>|&;()!#~") {
			out[i] = "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}

// Bounds on what is kept of arguments.
const (
	maxArgs    = 4 << 10
	maxAllArgs = 16 << 20
)

// A programStart is an image chunk as it concerns the process that wrote it.
type programStart struct {
	pid, ppid int
	counter   uint64
	image     uint32
	args      []string
	cut       bool
}

// programLog collects the programs that were started.
type programLog struct {
	starts []programStart
	bytes  int
}

func (l *programLog) add(ch *chunkHead, image uint32, im *Image) {
	if ch.pid == 0 {
		return
	}
	s := programStart{pid: int(ch.pid), ppid: im.Parent, counter: ch.counter, image: image}
	room := min(maxArgs, maxAllArgs-l.bytes)
	for _, a := range im.Command {
		if len(a)+1 > room {
			s.cut = true
			a = a[:min(len(a), max(room-1, 0))]
		}
		if len(a) > 0 || !s.cut {
			s.args = append(s.args, strings.Clone(a))
		}
		room -= len(a) + 1
		l.bytes += len(a) + 1
		if s.cut {
			break
		}
	}
	l.starts = append(l.starts, s)
}

// setProcesses makes the processes. Tasks have their times.
func (t *Trace) setProcesses(log *programLog) {
	records := map[int][]*InfoProcess{} // by pid, oldest first
	if t.Info != nil {
		for i := range t.Info.Processes {
			r := &t.Info.Processes[i]
			records[r.PID] = append(records[r.PID], r)
		}
	}
	// life is the number of the processes with that id that had ended before.
	type life struct{ pid, number int }
	lifeAt := func(pid int, at int64) life {
		n := 0
		for _, r := range records[pid] {
			if r.Ended != 0 && t.Clock.At(r.Ended) < at {
				n++
			}
		}
		return life{pid, n}
	}
	found := map[life]*Process{}
	newest := map[int]*Process{}
	for _, k := range t.Tasks { // by time
		id := lifeAt(k.PID, k.Start)
		p := found[id]
		if p == nil {
			p = &Process{Index: len(t.Processes), PID: k.PID, Start: k.Start, ParentPID: k.ParentPID}
			found[id] = p
			newest[k.PID] = p
			t.Processes = append(t.Processes, p)
		}
		p.Tasks = append(p.Tasks, k)
		k.Process = p
	}
	slices.SortStableFunc(log.starts, func(a, b programStart) int { return cmp.Compare(a.counter, b.counter) })
	for _, s := range log.starts {
		at := t.Clock.Time(s.counter)
		p := found[lifeAt(s.pid, at)]
		if p == nil {
			continue // it recorded nothing
		}
		if p.ParentPID == 0 {
			p.ParentPID = s.ppid
		}
		p.Programs = append(p.Programs, Program{Time: at, Image: int(s.image), Args: s.args, Cut: s.cut})
	}
	clear(newest)
	for _, p := range t.Processes {
		if q := newest[p.ParentPID]; q != nil && p.ParentPID != p.PID {
			p.Parent = q
			q.Children = append(q.Children, p)
		}
		newest[p.PID] = p
	}
	for _, p := range t.Processes { // parents first: their titles are inherited
		id := lifeAt(p.PID, p.Start)
		if id.number < len(records[p.PID]) {
			p.tell(t, records[p.PID][id.number])
		}
	}
	t.leaderEnded()
}

// leaderEnded takes how the program itself ended from where recorders always say it.
func (t *Trace) leaderEnded() {
	i := t.Info
	if i == nil || i.Duration <= 0 || i.ExitStatus < 0 && i.Signal == 0 {
		return
	}
	for _, p := range t.Processes {
		if p.PID == i.PID && p.Exit == nil {
			end := p.Start + int64(i.Duration)
			p.Exit = &ProcessExit{Time: end, Status: i.ExitStatus, Signal: syscall.Signal(i.Signal), Source: ExitWaited}
			return
		}
	}
}

// tell adds what a recorder has seen of a process.
func (p *Process) tell(t *Trace, r *InfoProcess) {
	if p.ParentPID == 0 {
		p.ParentPID = r.Parent
	}
	for _, title := range r.Titles {
		args, titled := p.Command(t.Clock.At(title.Monotonic))
		if text := strings.TrimRight(strings.Join(args, " "), " "); text == title.Text ||
			!titled && len(text) >= maxArgs/2 && strings.HasPrefix(title.Text, text) {
			continue // what is known
		}
		p.Titles = append(p.Titles, Title{Time: t.Clock.At(title.Monotonic), Text: title.Text})
	}
	if r.Source != "" {
		p.Exit = &ProcessExit{
			Time: t.Clock.At(r.Ended), Status: r.ExitStatus, Signal: syscall.Signal(r.Signal), Source: r.Source,
		}
	}
}
