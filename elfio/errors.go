package elfio

import "fmt"

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

// FormatErrorf returns a *FormatError.
func FormatErrorf(what string, off uint64, format string, args ...any) error {
	return &FormatError{What: what, Off: off, Msg: fmt.Sprintf(format, args...)}
}
