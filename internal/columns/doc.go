// Package columns makes the words of an events chunk smaller, and whole again: the contents of the trace format's
// compressed chunks (docs/format.md, "Compressed chunks"). It knows nothing about files, tasks or what events mean
// beyond the words.
//
// A word has a time and an id side by side, in both of which little changes from one to the next, but never the same
// bytes: of a trace of Lua zstd alone leaves 2.1 bytes an event and needs 80 ns for it, because it finds many short
// matches. So the words are taken apart first. What is left of a time is the difference to the one before, mostly one
// byte; most exits are of the call that was entered last, and need no id; most entries are of a few functions, one byte
// each. The columns are a quarter of the words, zstd has less to do, and leaves 0.15 bytes an event of that trace and
// 0.6 of one of SQLite. To guess the next function from the one before was tried: it makes the columns smaller and the
// frames larger, as zstd finds longer repetitions by itself. Huffman codes alone are as fast, and leave two to three
// times as much.
//
// # Security
//
// Words and frames may be anything. Encode reads each word once, so it makes sense even of memory that others write to
// meanwhile. Decode writes to the slice it is given, and needs memory in proportion to that slice, whatever a frame
// says.
package columns
