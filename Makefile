# make build     the fentry command, here
# make test      installs what the tests need (Debian: apt, as root or with sudo), then all checks and tests
# make wide      the tests of whole matrices and of everything that is installed, for hours; not for continuous integration
# make fresh     the README's commands on a fresh Debian in a directory; as root, with mmdebstrap
# make bench     tables of costs, with the peers that are installed
# make generate  everything that is generated: stub, format tables, man pages
# make fuzz      every fuzz target for FUZZTIME
# make install   command, man pages and completions below PREFIX

GO ?= go
PREFIX ?= /usr/local
FUZZTIME ?= 30s
BENCHFLAGS ?=
TESTFLAGS ?=
# What make test and make wide test.
PKGS ?= ./... ./.ci/summary
# A file of tests that may be skipped; with it, any other skipped test is a failure.
SKIPS ?=

.PHONY: build test wide fresh tools check bench bench-tools generate fuzz install clean

build:
	CGO_ENABLED=0 $(GO) build -o fentry ./cmd/fentry

test: tools check
	$(GO) test -json -timeout 45m $(TESTFLAGS) $(PKGS) | $(GO) run ./.ci/summary $(if $(SKIPS),-allow $(SKIPS))

wide: tools
	FENTRY_WIDE=1 $(GO) test -json -timeout 24h $(TESTFLAGS) $(PKGS) | $(GO) run ./.ci/summary

fresh:
	./.ci/fresh

# What the tests use and what provides it in Debian, as tool:package.
TEST_TOOLS = gcc:gcc g++:g++ clang:clang ld.lld:lld clang++:clang musl-gcc:musl-tools objdump:binutils eu-elflint:elfutils patchelf:patchelf gdb:gdb gdb-multiarch:gdb-multiarch \
	llvm-strip:llvm mold:mold xz:xz-utils valgrind:valgrind make:make tclsh:tcl dpkg-source:dpkg-dev man:man-db mandoc:mandoc python3:python3 c++filt:binutils flex:flex bison:bison bc:bc clang-19:clang-19 ld.lld-19:lld-19 llvm-objdump-19:llvm-19 \
	qemu-aarch64:qemu-user qemu-system-aarch64:qemu-system-arm aarch64-linux-gnu-g++:g++-aarch64-linux-gnu $(foreach m,$(CROSS),$(word 1,$(subst :, ,$m))-gcc:gcc-$(word 1,$(subst :, ,$m)))
TEST_FILES = /usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring /usr/include/gelf.h:libelf-dev \
	/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.xray-x86_64.a:libclang-rt-dev \
	$(foreach m,$(CROSS),/usr/$(word 1,$(subst :, ,$m))/include/stdio.h:libc6-dev-$(word 2,$(subst :, ,$m))-cross)
# The machines of fentry mcount, as the compiler calls them and as Debian does.
CROSS = aarch64-linux-gnu:arm64 i686-linux-gnu:i386 arm-linux-gnueabihf:armhf powerpc-linux-gnu:powerpc powerpc64-linux-gnu:ppc64 \
	powerpc64le-linux-gnu:ppc64el s390x-linux-gnu:s390x sparc64-linux-gnu:sparc64 mips-linux-gnu:mips mipsel-linux-gnu:mipsel \
	mips64-linux-gnuabi64:mips64 mips64el-linux-gnuabi64:mips64el sh4-linux-gnu:sh4 riscv64-linux-gnu:riscv64

tools:
	@./.ci/install $(TEST_TOOLS) $(TEST_FILES)

check:
	@unformatted=$$(git ls-files -z '*.go' | xargs -0 gofmt -l); test -z "$$unformatted" || { echo "gofmt -w:" $$unformatted; exit 1; }
	$(GO) vet ./... ./.ci/summary
	$(GO) tool -modfile=tools/go.mod staticcheck ./... ./.ci/summary

bench: tools bench-tools
	$(GO) run ./bench $(BENCHFLAGS)

bench-tools:
	@./.ci/install -optional uftrace:uftrace llvm-xray:llvm

generate:
	$(GO) generate ./...

fuzz:
	@set -e; $(GO) list -f '{{$$p := .ImportPath}}{{$$d := .Dir}}{{range .TestGoFiles}}{{$$p}} {{$$d}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$$p}} {{$$d}}/{{.}}{{"\n"}}{{end}}' ./... | \
	while read -r pkg file; do \
		test -n "$$file" || continue; \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			echo "$$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s "$$pkg"; \
		done; \
	done

install: build
	install -D fentry $(DESTDIR)$(PREFIX)/bin/fentry
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 docs/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	./fentry completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/fentry
	./fentry completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_fentry
	./fentry completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/fentry.fish

clean:
	rm -f fentry
