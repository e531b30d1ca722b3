#!/bin/sh
# See README.md. Works in a directory of its own, given or temporary.
set -eu
src=$(cd "$(dirname "$0")/../01-makefile-build-step" && pwd)
dir=${1:-$(mktemp -d)}
cd "$dir"

gcc -O2 -pg -mfentry -c "$src/words.c" && gcc -o words words.o

fentry patch --plan words
fentry patch -N main -o words.traced words

./words.traced < "$src/words.c"
fentry replay --no-pager | head -20
fentry report --no-pager

FENTRY_OFF=1 FENTRY_DATA=nothing.data ./words.traced < "$src/words.c" > /dev/null
test ! -e nothing.data

fentry patch --undo -o words.back words.traced
cmp words words.back
