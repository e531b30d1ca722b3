#!/bin/sh
# Makes the image that the fuzz target starts from: gcc 12, DWARF 5.
cd "$(dirname "$0")" || exit
gcc -g -O1 -shared -fPIC -nostdlib -Wl,--build-id=none -Wl,-z,noseparate-code -ffile-prefix-map="$PWD"=/src -o lines.elf lines.c
