package elfio

import (
	"errors"
	"fmt"
)

// ErrInjected is returned by Layout and Inject for an image that already carries an injection.
// Uninject it first.
var ErrInjected = errors.New("image already carries an injection (section .fentry.undo or a .fentry segment)")

// ErrNotInjected is returned by Uninject for an image that carries no injection.
var ErrNotInjected = errors.New("image carries no injection")

// ErrUndoLost is returned by Uninject for an image whose undo record a tool such as strip has
// dropped or whose layout has been changed since it was injected.
var ErrUndoLost = errors.New("the undo record is gone or no longer fits")

// FormatError says which part of a file is malformed.
type FormatError struct {
	What string // part of the file, such as "section header 7" or "section 12 (.symtab)"
	Off  uint64 // file offset of that part
	Msg  string // what is wrong with it
}

// Error formats the error as "what at offset 0x40: message".
func (e *FormatError) Error() string {
	return fmt.Sprintf("%s at offset %#x: %s", e.What, e.Off, e.Msg)
}

func formatErr(what string, off uint64, format string, args ...any) error {
	return &FormatError{What: what, Off: off, Msg: fmt.Sprintf(format, args...)}
}
