// Package fentry is the root of the module of the same name: ftrace for any
// program. The command is cmd/fentry; the libraries are elfio, arch, record,
// stub, patch, session, trace, symbol and export.
package fentry
