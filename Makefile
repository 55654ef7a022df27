# What to type. Every target sets up what it needs (scripts/setup) and leaves its output under build/.
PREFIX ?= /usr/local
SECONDS ?= 60
# jemalloc, loaded by a running program, wants more static thread-local storage than glibc keeps free.
JEMALLOC = glibc.rtld.optional_static_tls=16384
TRACES ?= $(sort $(wildcard tests/data/traces/*.pickle.gz))

.DEFAULT_GOAL := help
.PHONY: help demo test bench install uninstall format lint reference asan tsan fuzz coverage clean release dev

help:
	@echo 'make demo                 build, then replay the recorded traces under PyTorch'"'"'s rules and under weir'"'"'s'
	@echo 'make test                 build everything and run all tests'
	@echo 'make bench                build and run the benchmarks'
	@echo 'make install PREFIX=DIR   install library, headers and command (default $(PREFIX))'
	@echo 'make uninstall            remove what the last make install installed (the same DESTDIR, if it had one)'
	@echo 'make format               format all sources'
	@echo 'make lint                 format, layers, budgets, banned calls, spelling, clang-tidy'
	@echo 'make reference            the reference of the public headers, as HTML'
	@echo 'make asan | tsan          all tests under the sanitizers'
	@echo 'make fuzz SECONDS=60      run every fuzzer for that long'
	@echo 'make coverage             line coverage of the tests'
	@echo 'make clean                remove build/'
	@echo 'Arguments for the benchmarks: make bench ARGS="..."; other traces: make demo TRACES="..."'

demo: release
	build/release/bin/weir replay --policy torch --policy weir $(TRACES)

test: dev
	ctest --preset dev -j2

bench: release
	@scripts/setup bench
	GLIBC_TUNABLES=$(JEMALLOC) build/release/bin/weir-bench $(ARGS)

install: release
	cmake --install build/release --prefix "$(PREFIX)"

# Folders stay: others may use them.
uninstall:
	@test -f build/release/install_manifest.txt || { echo 'nothing was installed from here (make install)' >&2; exit 1; }
	sed 's|^|$(DESTDIR)|' build/release/install_manifest.txt | xargs -d '\n' rm -fv --

release:
	@scripts/setup build
	@scripts/build release

dev:
	@scripts/setup build test
	@scripts/build dev

asan tsan:
	@scripts/setup build test clang
	@scripts/build $@
	ctest --preset $@ -j2

fuzz:
	@scripts/setup build clang
	@scripts/build fuzz
	scripts/fuzz $(SECONDS)

coverage:
	@scripts/setup build test coverage
	@scripts/build coverage
	ctest --preset coverage -j2
	gcovr --root . --filter src/ --filter tools/ build/coverage

format:
	@scripts/setup lint
	scripts/format --fix

lint:
	@scripts/setup build test clang lint
	scripts/lint

reference:
	@scripts/setup lint
	@scripts/reference

clean:
	rm -rf build
