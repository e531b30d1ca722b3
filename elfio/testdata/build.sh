#!/bin/sh
# Rebuilds the images of this directory. They are checked in so that the tests need no compiler.
# Made with Debian 12: clang 14, lld 14, gcc 12.
set -e
cd "$(dirname "$0")"
common="-O1 -ffreestanding -nostdlib -fno-stack-protector -funwind-tables -Wl,--build-id=sha1"
lld() { name=$1; shift; clang -w $common -fuse-ld=lld "$@" tiny.c -o "$name"; }
lld x86_64-exec --target=x86_64-linux-gnu -static -fno-pic
lld x86_64-pie-relr --target=x86_64-linux-gnu -pie -fPIE -Wl,--pack-dyn-relocs=relr
lld x86_64-shared --target=x86_64-linux-gnu -shared -fPIC -Wl,--hash-style=both
lld i386-exec --target=i386-linux-gnu -static -fno-pic
lld i386-shared --target=i386-linux-gnu -shared -fPIC
lld arm-shared --target=armv7-linux-gnueabihf -shared -fPIC
lld arm64-pie --target=aarch64-linux-gnu -pie -fPIE
lld ppc64-be-shared --target=powerpc64-linux-gnu -mabi=elfv2 -shared -fPIC
lld mips-be-shared --target=mips-linux-gnu -shared -fPIC
gcc -O1 -c -fPIC -ffreestanding -funwind-tables tiny.c -o x86_64.o
clang -w --target=aarch64-linux-gnu -O1 -c -fPIC -ffreestanding -funwind-tables tiny.c -o arm64.o
clang -w --target=s390x-linux-gnu -O1 -c -fPIC -ffreestanding tiny.c -o s390x-be.o
gcc -O1 -c -fPIC -ffreestanding counter.c -o counter.o
chmod 644 *-* *.o
