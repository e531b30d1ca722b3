package inject

import "errors"

// ErrInjected is returned by NewLayout and Into for an image that already carries an injection.
// Undo it first.
var ErrInjected = errors.New("image already carries an injection (section .fentry.undo or a .fentry segment)")

// ErrNotInjected is returned by Undo for an image that carries no injection.
var ErrNotInjected = errors.New("image carries no injection")

// ErrUndoLost is returned by Undo for an image whose undo record has been dropped by a tool such as strip, or whose
// layout has changed since the injection.
var ErrUndoLost = errors.New("the undo record is gone or no longer fits")
