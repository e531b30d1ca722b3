package export

import "github.com/fentry-dev/fentry/trace"

// A Root is where call paths begin, in formats that merge calls by their paths.
type Root struct {
	*trace.Node
	// Task is of the process whose path it is, its name is the process's. It is nil in a trace of a single process.
	Task *trace.Task
}

// Roots merges the calls by their paths and returns the outermost nodes: those of each process for itself if the trace
// has several. Recursive calls stay paths of their own.
func (s *Source) Roots() ([]Root, error) {
	several := len(s.Trace.Processes) > 1
	all, err := s.Graph(trace.GraphOptions{PerProcess: several, KeepRecursion: true})
	if err != nil {
		return nil, err
	}
	var roots []Root
	for _, n := range all.Children {
		if !several || n.Task == nil {
			roots = append(roots, Root{Node: n})
			continue
		}
		for _, c := range n.Children {
			roots = append(roots, Root{c, n.Task})
		}
	}
	return roots, nil
}

// Count counts the calls of a path that is written.
func (s *Summary) Count(n *trace.Node) {
	s.Calls += n.Calls
	s.Leave("paths beyond the limits of the tree, folded into shorter ones: calls", n.Folded)
}
