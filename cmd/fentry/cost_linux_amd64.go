package main

import _ "embed"

// costProgram measures; it is built by machine/build.sh from machine/cost.c and checked in, so that it needs no
// compiler.
//
//go:embed machine/cost-amd64.elf
var costProgram []byte
