#!/bin/sh
# Builds the programs that fentry info --machine runs: cmd/fentry/machine/build.sh [DIRECTORY]
# Needs gcc for both machines (Debian: gcc, gcc-aarch64-linux-gnu).
set -eu
cd "$(dirname "$0")"
for m in amd64:gcc arm64:aarch64-linux-gnu-gcc; do
	cc=${m#*:}
	out=${1:-.}/cost-${m%:*}.elf
	$cc -O2 -ffreestanding -nostdlib -static -fno-pie -no-pie -fno-stack-protector \
		-Wl,--build-id=sha1,-z,separate-code,-z,norelro -o "$out" cost.c
	"${cc%gcc}strip" --strip-debug "$out"
done
