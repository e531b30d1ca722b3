#!/bin/sh
# Makes the images of this directory. They are kept so that the tests need no compiler; run this, with gcc 12 and
# clang 14 of Debian 12, when the sources change, and then the tests with FENTRY_UPDATE=1 for the .golden files.
set -e
cd "$(dirname "$0")"
common="-O2 -w -nostdlib -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,max-page-size=4096"
gcc $common -pg -mfentry -fPIC -shared -o fentry-shared.elf small.c
gcc $common -pg -mfentry -fcf-protection -fPIC -shared -Wl,-s -o fentry-cet-stripped.elf small.c
gcc $common -pg -fPIE -static-pie -Wl,-e,_start -o mcount-static-pie.elf small.c stub.s
gcc $common -pg -fno-pie -static -Wl,-s -o mcount-static-stripped.elf small.c stub.s
gcc $common -pg -mfentry -fno-pie -static -Wl,-s -o fentry-static-stripped.elf small.c stub.s
gcc $common -pg -mfentry -mnop-mcount -mrecord-mcount -fno-pie -static -o nop-static.elf small.c stub.s
gcc $common -pg -mfentry -mrecord-mcount -fPIC -shared -o record-shared.elf small.c
gcc $common -fpatchable-function-entry=7,2 -fcf-protection -fPIC -shared -Wl,-z,pack-relative-relocs -o patchable-relr.elf small.c
clang $common -fpatchable-function-entry=5 -fPIC -shared -Wl,-s -o patchable-clang-stripped.elf small.c
clang $common -fxray-instrument -fxray-instruction-threshold=1 -fnoxray-link-deps -fPIC -shared -o xray-shared.elf small.c
arm64=aarch64-linux-gnu-gcc
$arm64 $common -fpatchable-function-entry=2 -fPIC -shared -o patchable-arm64.elf small.c
$arm64 $common -fpatchable-function-entry=4,2 -mbranch-protection=standard -fPIC -shared -Wl,-s -o patchable-arm64-stripped.elf small.c
$arm64 $common -pg -fPIC -shared -o mcount-arm64.elf small.c
$arm64 $common -pg -fno-pie -static -Wl,-s -o mcount-arm64-static-stripped.elf small.c stub-arm64.s -lgcc
$arm64 $common -pg -mbranch-protection=standard -fPIE -static-pie -Wl,-e,_start -o signed-arm64.elf small.c stub-arm64.s -lgcc
clang --target=aarch64-linux-gnu $common -fxray-instrument -fxray-instruction-threshold=1 -fnoxray-link-deps -fPIC -shared -o xray-arm64.elf small.c
