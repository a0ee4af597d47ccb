# SPDX-License-Identifier: GPL-2.0
#
# The one door: `make help` lists what it opens.  Everything is built in Debian
# 13's sysroot (tools/sysroot), so that every machine builds the same; only
# `make modules KDIR=...` uses the machine's own compilers, as that kernel did.

SHELL := /bin/bash
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:

sysroot := tools/sysroot run --
say = @printf '  %-8s %s\n'
cargo = $(sysroot) env CARGO_TARGET_DIR=$(CURDIR)/build/cargo CARGO_TERM_QUIET=true cargo

# Where the module is built: clippy's leftovers must not meet the compiler's
OUT ?= build/$(if $(CLIPPY),clippy,module)
PREFIX ?= /usr/local
SUITE ?=
BENCH ?=

# With KDIR the kernel tree and its toolchain are the caller's, else the stock
# kernel's tree in the cache.  Evaluated in recipes only: it may take minutes.
ifdef KDIR
kbuild = $(MAKE) -s -C $(KDIR)
else
kbuild = $(sysroot) make -s -j$(shell nproc) -C $$(tools/kernel kdir) $$(tools/kernel flags)
endif
# BTF of a module is made from its kernel's vmlinux, which is not at hand
kbuild += M=$(CURDIR) MO=$(abspath $(OUT)) CONFIG_DEBUG_INFO_BTF_MODULES= \
	  $(if $(CLIPPY),CLIPPY=1) $(if $(C),C=$(C)) $(if $(KRUSTFLAGS),KRUSTFLAGS="$(KRUSTFLAGS)")

.PHONY: all
all: modules csdctl

.PHONY: modules
modules:
	$(say) MODULE $(OUT)/csd.ko
	@mkdir -p $(OUT)
	@$(if $(KDIR),,tools/kernel kdir >/dev/null &&) $(kbuild) modules || { rm -f $(OUT)/csd.ko; exit 1; }

.PHONY: csdctl
csdctl:
	$(say) CSDCTL build/bin/csdctl
	@mkdir -p build/bin
	@$(cargo) build --release --locked -p csdctl || { rm -f build/bin/csdctl; exit 1; }
	@cp build/cargo/release/csdctl build/csdctl.new && mv build/csdctl.new build/bin/csdctl

.PHONY: selftests
selftests:
	$(say) TESTS build/selftests
	@$(sysroot) make -s -C tests/selftests OUT=$(CURDIR)/build/selftests

.PHONY: run
run: modules csdctl
	@tools/demo

.PHONY: check check-all
check:
	@$(sysroot) tests/run $(if $(JOBS),--jobs $(JOBS)) $(SUITE)
check-all:
	@$(sysroot) tests/run $(if $(JOBS),--jobs $(JOBS)) --all

.PHONY: bench
bench: modules csdctl
	@mkdir -p build/bench
ifeq ($(BENCH),)
	@echo 'make bench BENCH=NAME, where NAME is one of:'; \
	find tools/bench -maxdepth 1 -type f -perm -1 -printf '  %f\n' | sort
	@exit 2
else
	@tools/bench/$(BENCH)
endif

.PHONY: lint
lint:
	@$(sysroot) tools/lint

.PHONY: fmt
fmt:
	$(say) FMT 'userspace and module'
	@$(cargo) fmt --all
	@$(sysroot) rustfmt --edition 2021 --config-path $$(tools/kernel kdir)/.rustfmt.toml rust/csd/csd_main.rs

.PHONY: docs
docs:
	$(say) DOCS build/docs
	@$(sysroot) Documentation/check --cc gcc
	@$(sysroot) tools/docs build/docs
	@$(cargo) doc --workspace --no-deps --locked --document-private-items

# csd.ko goes where its own version string says; csdctl's pages come from itself
.PHONY: install
install:
	@test -f $(OUT)/csd.ko && test -x build/bin/csdctl || { echo 'make install: run make first' >&2; exit 1; }
	@tools/install/install "$(OUT)/csd.ko" build/bin/csdctl "$(DESTDIR)" "$(PREFIX)"

.PHONY: clean
clean:
	$(say) CLEAN build
	@rm -rf build target

.PHONY: help
help:
	@echo 'make             build csd.ko and csdctl (below build/)'; \
	echo 'make run         boot three NVMe drives and let them filter and encrypt a table'; \
	echo 'make check       all quick tests; SUITE=NAME one suite (SUITE=native: cargo), TEST=TEXT some of it; JOBS=N at once'; \
	echo 'make check-all   also the tests that take longer'; \
	echo 'make modules     csd.ko for the stock kernel; KDIR=TREE for a prepared kernel tree; CLIPPY=1; OUT=DIR'; \
	echo 'make csdctl      the command line tool'; \
	echo 'make install     csd.ko, csdctl, udev rule, completions, manual pages; DESTDIR=, PREFIX=/usr/local'; \
	echo 'make bench       a benchmark: BENCH=NAME, without it lists them'; \
	echo 'make lint        format, clippy, checkpatch, sparse, unsafe and licence checks; make fmt mends the format'; \
	echo 'make docs        checks Documentation and builds it, and the Rust pages'; \
	echo 'make clean       removes build/; the cache is $${CSD_CACHE:-~/.cache/csd}, remove it by hand'; \
	echo 'tools/vm --help  the test machine by itself'
