# SPDX-License-Identifier: GPL-2.0-only

.PHONY: run test test-kernels check setup

# Installs what is missing, builds, and schedules: this machine, or one in QEMU.
run: setup
	cargo build --release
	.ci/main-job

# Installs what is missing and runs every test: the brain's, then real kernels.
test: check
	cargo test --release
	cargo test --release --test vm -- suite

# The same scenarios on Linux 6.12, built from source once (about 10 minutes on two cores).
test-kernels: setup
	.ci/setup kernel
	cargo test --release --test vm -- build-kernel
	cargo test --release --test vm -- suite --series 6.12

check: setup
	cargo fmt --check
	cargo clippy --release --all-targets -- -D warnings

setup:
	@.ci/setup
