package parquet

import (
	"errors"
	"io"
	"os"
	"path"
	"slices"

	"github.com/fentry-dev/fentry/internal/parquet"
)

// The tables. Times are ns since the trace's start, but for runs.started.
var tables = map[string][]parquet.Column{
	"calls": {
		{Name: "task", Type: parquet.Int32}, {Name: "function", Type: parquet.Int32}, {Name: "path", Type: parquet.Int32},
		{Name: "start_ns", Type: parquet.Int64}, {Name: "duration_ns", Type: parquet.Int64},
		{Name: "self_ns", Type: parquet.Int64}, {Name: "end", Type: parquet.Text},
	},
	"paths": {
		{Name: "path", Type: parquet.Int32}, {Name: "parent", Type: parquet.Int32}, {Name: "function", Type: parquet.Int32},
		{Name: "depth", Type: parquet.Int32},
	},
	"functions": {
		{Name: "function", Type: parquet.Int32}, {Name: "name", Type: parquet.Text}, {Name: "image", Type: parquet.Text},
		{Name: "build_id", Type: parquet.Text},
	},
	"tasks": {
		{Name: "task", Type: parquet.Int32}, {Name: "pid", Type: parquet.Int32}, {Name: "tid", Type: parquet.Int32},
		{Name: "name", Type: parquet.Text}, {Name: "start_ns", Type: parquet.Int64},
	},
	"runs": {
		{Name: "started", Type: parquet.Time}, {Name: "duration_ns", Type: parquet.Int64},
		{Name: "command", Type: parquet.Text}, {Name: "build_id", Type: parquet.Text},
		{Name: "exit_status", Type: parquet.Int32}, {Name: "signal", Type: parquet.Int32},
		{Name: "machine", Type: parquet.Text}, {Name: "kernel", Type: parquet.Text}, {Name: "cpu", Type: parquet.Text},
		{Name: "cpus", Type: parquet.Int32}, {Name: "calls", Type: parquet.Int64}, {Name: "lost", Type: parquet.Int64},
	},
}

// order is the one in which the files get their names.
var order = []string{"calls", "paths", "functions", "tasks", "runs"}

// A sink takes the values of a table's rows, one after the other in the order of the columns.
type sink interface {
	Int(int64)
	Text(string)
	Err() error // the first
	Close() error
}

// A kind is what files are written in.
type kind struct {
	suffix string
	make   func(w io.Writer, r *run, columns []parquet.Column) (sink, error)
}

// A table is one that is written.
type table struct {
	sink
	file      *os.File
	root      *os.Root
	tmp, name string
}

// A run is the files of one.
type run struct {
	root          *os.Root
	kind          kind
	host, program string
	number        string
	all           map[string]*table
	made          []string // directories, each before those in it
}

// part is the directory of the run below those of tables.
func (r *run) part() string {
	return path.Join("host="+component(r.host), "program="+component(r.program), "run="+r.number)
}

// table begins a table.
func (r *run) table(name string) (*table, error) {
	dir := path.Join(name, r.part())
	if err := r.makeDir(dir); err != nil {
		return nil, err
	}
	file := r.number + r.kind.suffix
	t := &table{root: r.root, tmp: path.Join(dir, "."+file+".tmp"), name: path.Join(dir, file)}
	// One that was left by an exporter that was killed is in the way, as is that of another one that exports the same
	// trace: the last one to finish wins.
	if err := r.root.Remove(t.tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var err error
	if t.file, err = r.root.OpenFile(t.tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666); err != nil {
		return nil, err
	}
	r.all[name] = t
	t.sink, err = r.kind.make(t.file, r, tables[name])
	return t, err
}

// makeDir makes a directory, and those that it is in, which are not there yet.
func (r *run) makeDir(dir string) error {
	if parent := path.Dir(dir); parent != "." {
		if err := r.makeDir(parent); err != nil {
			return err
		}
	}
	err := r.root.Mkdir(dir, 0o777)
	if err == nil {
		r.made = append(r.made, dir)
	} else if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

// close gives the files their names. With an error they are removed, as are directories that have been made for them.
func (r *run) close(err error) error {
	for _, name := range order {
		if t := r.all[name]; t != nil {
			if err == nil {
				err = t.Close()
			}
			err = errors.Join(err, t.file.Close())
		}
	}
	for _, name := range order {
		if t := r.all[name]; t != nil && err == nil {
			err = r.root.Rename(t.tmp, t.name)
		} else if t != nil {
			_ = r.root.Remove(t.tmp)
		}
	}
	for _, dir := range slices.Backward(r.made) {
		if err != nil {
			_ = r.root.Remove(dir) // not if others have put something there
		}
	}
	return err
}
