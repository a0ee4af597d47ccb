# SPDX-License-Identifier: GPL-2.0
MAKEFLAGS += --no-print-directory
sysroot := tools/sysroot run --
OUT ?= $(if $(CLIPPY),build/clippy,build/module)

.PHONY: modules
modules:
	@mkdir -p $(OUT)
	@kdir=$$(tools/kernel kdir) && $(sysroot) make -s -C "$$kdir" $$(tools/kernel flags) M=$(CURDIR) MO=$(abspath $(OUT)) $(if $(CLIPPY),CLIPPY=1) modules
