// Package bigslice allocates slices of many megabytes that are filled from end to end.
//
// A page fault and the clearing of a page cost more than most of what programs write to the page: for slices as large
// as an executable's tables they would be most of the time. Such slices ask for huge pages.
package bigslice

import "unsafe"

// least is the size from which on asking is worth a system call. Smaller slices cover few whole huge pages.
const least = 4 << 20

// Make is make([]T, n, room) for slices that will be filled.
func Make[T any](n, room int) []T {
	s := make([]T, n, room)
	var t T
	if size := uintptr(cap(s)) * unsafe.Sizeof(t); size >= least {
		advise(uintptr(unsafe.Pointer(unsafe.SliceData(s))), size)
	}
	return s
}

// Grow is slices.Grow for slices that will be filled.
func Grow[T any](s []T, n int) []T {
	if cap(s)-len(s) >= n {
		return s
	}
	return append(Make[T](0, len(s)+n), s...)
}
