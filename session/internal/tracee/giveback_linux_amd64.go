package tracee

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// Pages that are the file's again.
//
// A page of code that has been changed is the process's own. When it has its old bytes back, it would stay so: it takes memory,
// and the processor does not find it as quickly as those of the file, which lie beside each other. So what is as it is in the
// file is given back, and the process has the file's pages again, as if they had never been changed. What differs, because
// the process has changed it itself or the file is not what it was, stays.

const (
	// backGap is how many pages that have not been changed may lie between two that are given back together.
	backGap = 16
	// backStep is how much is compared at a time.
	backStep = 64 << 10
	// mostBack is how much is given back by one call, and backAtOnce for how many of these the file is read before a stop.
	mostBack   = 1 << 20
	backAtOnce = 16
)

// A fileStretch is pages that are mapped from a file, or from a copy of it.
type fileStretch struct {
	area
	in     mapping
	f      *os.File
	copied bool
	offset int64
	was    []byte // what the file has there
}

// stays tells whether the stretch is still mapped from what it was.
func (s *fileStretch) stays(ms []mapping) bool {
	for i := range ms {
		m := &ms[i]
		if m.lo > s.at || s.at+s.size > m.hi || m.perms != s.in.perms || m.file() != s.in.file() {
			continue
		}
		begin, err := m.offset()
		return err == nil && begin+int64(s.at-m.lo) == s.offset
	}
	return false // something else can be there
}

// giveBack gives the pages of edits back that are as they are in their files, in stops of a bounded length. Where that cannot be
// done they stay: nothing depends on it. Of code that was mapped from a copy in which it is changed (code.go), what is as in the
// program's file is mapped from that.
func (a *Attachment) giveBack(ts *threads, edits []arch.Edit) error {
	ms, err := ts.maps()
	if err != nil {
		return err
	}
	copies, files := a.copies(), make(map[mapping]*os.File)
	defer func() {
		for _, f := range files {
			_ = f.Close() // perhaps nil
		}
	}()
	for rest := ts.ofFiles(ms, pagesOf(edits), copies, files); len(rest) > 0; {
		began, now := time.Now(), rest[:min(len(rest), backAtOnce)]
		for i := range now {
			now[i].read()
		}
		err := ts.within(false, func() error {
			ms, err := ts.maps()
			if err != nil {
				return err
			}
			return ts.calling(ms, func(r *remote) (err error) {
				if r.filtered() {
					rest = nil // perhaps it may not
					return nil
				}
				began = time.Now()
				back := &backer{remote: r}
				defer func() { err = errors.Join(err, back.close()) }()
				for more := true; more && len(now) > 0; more = time.Since(began) < ts.limit() {
					if err := back.giveBack(ms, &now[0]); err != nil {
						return err
					}
					now[0].was = nil // there can be as much of it as the program has code
					now, rest = now[1:], rest[1:]
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
		if len(rest) > 0 {
			time.Sleep(time.Since(began))
		}
	}
	return ts.giveBackOthers(copies)
}

// giveBack gives back what of a stretch is as it is in the file.
func (r *remote) giveBack(s *fileStretch) error {
	now, run := make([]byte, backStep), area{s.at, 0}
	drop := func() (err error) {
		if run.size > 0 {
			_, err = r.call(unix.SYS_MADVISE, run.at, run.size, unix.MADV_DONTNEED)
		}
		return unrefused(err) // it can be locked into memory
	}
	for at := s.at; at < s.at+s.size; at += uint64(len(now)) {
		now = now[:min(backStep, s.at+s.size-at)]
		was := s.was[at-s.at:][:len(now)]
		if (stopped{&r.t.Process}).ReadAt(now, at) != nil {
			return drop()
		}
		for i := uint64(0); i < uint64(len(now)); i += PageSize {
			if page := at + i; !bytes.Equal(now[i:i+PageSize], was[i:i+PageSize]) {
				if err := drop(); err != nil {
					return err
				}
				run = area{page + PageSize, 0}
			} else {
				run.size += PageSize
			}
		}
	}
	return drop()
}

// pagesOf are the pages that edits, which are sorted, lie in, and what is between those that are close.
func pagesOf(edits []arch.Edit) (all []area) {
	for i := range edits {
		lo, hi := edits[i].Addr&^(PageSize-1), pageUp(endOf(&edits[i]))
		if k := len(all) - 1; k >= 0 && lo <= all[k].at+all[k].size+backGap*PageSize {
			all[k].size = max(all[k].size, hi-all[k].at)
		} else {
			all = append(all, area{lo, hi - lo})
		}
	}
	return all
}

// read reads what the file has.
func (s *fileStretch) read() {
	s.was = make([]byte, s.size)
	n, _ := s.f.ReadAt(s.was, s.offset)
	s.size = uint64(n) &^ (PageSize - 1)
}

// ofFiles are the parts of areas that are mapped from files, which it opens, and cannot be written to.
//
// Parts of copies are those that the file's mapping is divided into, so that there are few mappings when some are given back.
func (ts *threads) ofFiles(ms []mapping, areas []area, copies codeCopies, files map[mapping]*os.File) (all []fileStretch) {
	for _, a := range areas {
		for _, m := range ms {
			lo, hi := max(a.at, m.lo), min(a.at+a.size, m.hi)
			if lo >= hi || m.path == "" || len(m.perms) != 4 || m.perms[1] == 'w' || m.perms[3] != 'p' {
				continue
			}
			copied := copies.have(&m)
			f, known := files[m]
			switch {
			case known:
			case copied:
				f, _ = safefile.Open(procfs.Dir(ts.pid) + "/exe")
				files[m] = f
			default:
				f = ts.fileOf(&m)
				files[m] = f
			}
			if copied {
				lo, hi = max(lo&^(mostBack-1), m.lo), min((hi+mostBack-1)&^(mostBack-1), m.hi)
				if k := len(all) - 1; k >= 0 && all[k].copied {
					lo = max(lo, all[k].at+all[k].size)
				}
			}
			begin, err := m.offset()
			if f == nil || err != nil {
				continue
			}
			for n := uint64(0); lo < hi; lo += n {
				n = min(hi-lo, mostBack)
				if copied {
					n = min(hi, lo&^(mostBack-1)+mostBack) - lo
				}
				all = append(all, fileStretch{area{lo, n}, m, f, copied, begin + int64(lo-m.lo), nil})
			}
		}
	}
	return all
}

// fileOf opens the file of a mapping; nil: it cannot be had.
func (ts *threads) fileOf(m *mapping) *os.File {
	dir := procfs.Dir(ts.pid)
	for _, path := range []string{
		fmt.Sprintf("/proc/%d/map_files/%x-%x", ts.pid, m.lo, m.hi), dir + "/exe", dir + "/root" + m.path,
	} {
		f, err := safefile.Open(path)
		if err != nil {
			continue
		}
		if st, err := f.Stat(); err == nil && m.isOf(st) {
			return f
		}
		f.Close()
	}
	return nil
}
