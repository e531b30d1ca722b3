//go:build linux

package tracefs

import "syscall"

// mostWord is how long a word may be that is written to a filter, as in the kernel (FTRACE_BUFF_MAX).
const mostWord = 516

// words are what is written to a filter, cut at white space. A word may come in several writes: it is complete when white
// space follows, or the file is closed.
type words struct {
	part []byte
}

// write adds what one write has, and calls f for each word that is complete by then, until there is an error.
func (w *words) write(b []byte, f func(word string) error) error {
	for _, c := range b {
		if c != ' ' && (c < '\t' || c > '\r') && c != 0 {
			if w.part = append(w.part, c); len(w.part) >= mostWord {
				w.part = nil
				return syscall.EINVAL
			}
			continue
		}
		if err := w.end(f); err != nil {
			return err
		}
	}
	return nil
}

// end takes what there is for a word.
func (w *words) end(f func(word string) error) error {
	if len(w.part) == 0 {
		return nil
	}
	word := string(w.part)
	w.part = w.part[:0]
	return f(word)
}
