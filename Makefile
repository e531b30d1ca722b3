# make build     the fentry command, here
# make test      installs what the tests need (Debian: apt, as root or with sudo), then all checks and tests
# make wide      the tests of whole matrices and of everything that is installed, for hours; not for continuous integration
# make soak      programs traced at random, each time in another way, for SOAK (1h)
# make fresh     the README's commands on a fresh Debian in a directory; as root, with mmdebstrap
# make bench     tables of costs, with the peers that are installed
# make generate  everything that is generated: stub, format tables, man pages
# make fuzz      every fuzz target for FUZZTIME
# make install   command, man pages and completions below PREFIX

GO ?= go
PREFIX ?= /usr/local
FUZZTIME ?= 30s
SOAK ?= 1h
BENCHFLAGS ?=
TESTFLAGS ?=
# What make test and make wide test.
PKGS ?= ./... ./.ci/summary
# A file of tests that may be skipped; with it, any other skipped test is a failure.
SKIPS ?=

.PHONY: build test wide soak fresh tools wide-tools check bench bench-tools generate fuzz install clean

build:
	CGO_ENABLED=0 $(GO) build -o fentry ./cmd/fentry

test: tools check
	$(GO) test -json -timeout 80m $(TESTFLAGS) $(PKGS) | $(GO) run ./.ci/summary $(if $(SKIPS),-allow $(SKIPS))

wide: tools wide-tools
	FENTRY_WIDE=1 $(GO) test -json -timeout 24h $(TESTFLAGS) $(PKGS) | $(GO) run ./.ci/summary

soak: tools
	FENTRY_SOAK=$(SOAK) $(GO) test -v -timeout 24h -run '^TestSoak' . ./e2e

fresh:
	./.ci/fresh

# What the tests use, and the packages that have it: internal/testtool/tools.txt; what only wide ones use: widetools.txt.
tools wide-tools:
	@./.ci/install $$(awk -F ': ' '/^[^#]/ { n = split($$2, tool, " "); for (i = 1; i <= n; i++) print tool[i] ":" $$1 }' internal/testtool/$(subst -,,$@).txt)

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
