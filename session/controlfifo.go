//go:build linux

package session

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Control by a FIFO, as perf has it (perf-record(1), --control): lines in, and where somebody wants to know, a line out for
// each, when what it says has been done.

// A ControlPipe is a pair of FIFOs by which a session is controlled. Both are open for reading and writing, without
// waiting, and Run closes them.
type ControlPipe struct {
	Commands *os.File
	Answers  *os.File // nil: nobody wants to know
}

// perfWords are the words of perf's that have others here.
var perfWords = map[string]string{
	"enable": "tracing_on = 1", "disable": "tracing_on = 0", "snapshot": "dump", "stop": "detach",
}

// perfList is perf's word for a list of what is recorded, with options that say how. It goes where the recorder says all.
const perfList = "evlist"

// ack answers a line that was followed.
const ack = "ack"

// obeyPipe follows what comes, until the session ends.
func (s *session) obeyPipe(p *ControlPipe) {
	lines := bufio.NewReaderSize(p.Commands, mostCommand)
	for {
		line, err := lines.ReadSlice('\n')
		answer := ""
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			answer = fmt.Sprintf("error %d: a line has at most %d bytes", mostCommand, mostCommand)
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
		case err == nil:
			answer = s.obeyWord(strings.TrimRight(string(line), "\n\x00"))
		}
		if err != nil {
			return // the session ends, or nobody can write any more
		}
		if p.Answers != nil {
			_ = p.Answers.SetWriteDeadline(time.Now().Add(endPatience))
			_, _ = fmt.Fprintln(p.Answers, answer)
		}
	}
}

// obeyWord follows a line.
func (s *session) obeyWord(line string) string {
	if word, _, _ := strings.Cut(line, " "); word == perfList {
		s.logf("%s", s.status())
		return ack
	}
	word, perf := perfWords[line]
	if perf {
		line = word
	}
	answer, err := s.obey(line)
	if err != nil {
		return fmt.Sprintf("error %d: %s", err.Column, err.Why)
	}
	if answer == "" || perf && line != "dump" {
		return ack
	}
	return ack + " " + strings.ReplaceAll(answer, "\n", " ")
}

// close gives the pipe up.
func (p *ControlPipe) close() {
	if p == nil {
		return
	}
	p.Commands.Close()
	if p.Answers != nil {
		p.Answers.Close()
	}
}
