//go:build !linux

package bigslice

func advise(addr, size uintptr) {}
