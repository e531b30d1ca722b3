#!/bin/sh
# Builds the embedded demo program: cmd/fentry/demo/build.sh [OUTPUT]
# Needs musl-gcc (Debian: musl-tools). Compiling and linking are two steps
# because linking with -pg would ask for the C library's profiling start-up code.
set -eu
cd "$(dirname "$0")"
out=${1:-demo.elf}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
musl-gcc -O2 -fno-pie -pg -mfentry \
	-ffile-prefix-map="$PWD"=. -c demo.c -o "$tmp/demo.o"
musl-gcc -static -no-pie -Wl,--gc-sections -Wl,--build-id=sha1 -o "$tmp/demo.elf" "$tmp/demo.o"
strip --strip-debug "$tmp/demo.elf"
mv "$tmp/demo.elf" "$out"
