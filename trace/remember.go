package trace

import "sync"

// Remember returns a test of functions that asks test once about each, such as one that compares names with patterns:
// events ask about the same few functions again and again, and reports from several goroutines at once.
func Remember(test func(FuncID) bool) func(FuncID) bool {
	var mu sync.Mutex
	known := map[FuncID]bool{}
	return func(id FuncID) bool {
		mu.Lock()
		defer mu.Unlock()
		is, ok := known[id]
		if !ok {
			if is = test(id); len(known) < maxCachedIDs { // a damaged trace has functions without end
				known[id] = is
			}
		}
		return is
	}
}
