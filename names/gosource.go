package names

import "github.com/fentry-dev/fentry/record/golang"

// A GoSource is where what is known of the runtime of a Go program is from.
type GoSource = golang.Source

// The sources.
const (
	GoTried     = golang.Tried     // a table of the versions that were tried
	GoDescribed = golang.Described // the program's debug information
	GoDerived   = golang.Derived   // the code of its runtime, which cannot be told of moved code
)
