# SPDX-License-Identifier: GPL-2.0-only

.PHONY: run test fuzz sanitize test-kernels bench lab probe dist package check setup build install uninstall deb \
	distribution static

TARGET = $(or $(CARGO_TARGET_DIR),target)
PREFIX = /usr/local
FUZZ_SECONDS = 30
HOST = $(shell rustc --print host-tuple)
PACKAGE = $(TARGET)/deb/scx-pandemonium-user_*.deb
TOOLS = $(TARGET)/deb/scx-pandemonium-user-tools_*.deb
VM = $(TARGET)/release/pandemonium_vm
PROGRAMS = scx_pandemonium_user pandemonium_bench pandemonium_follow pandemonium_lab \
	pandemonium_probe pandemonium_vm

# Installs what is missing, builds, and schedules: this machine, or one in QEMU.
run: setup
	cargo build --release --workspace
	.ci/main-job

# Installs what is missing and runs every test: of the crates, then on real kernels.
test: check
	cargo test --release --workspace
	cargo build --release --workspace
	$(VM) suite

# Fuzzes every input of the programs, for FUZZ_SECONDS each, and prints how far that came. `make test`
# tries the seeds and some changes of them.
fuzz: setup crates/fuzz/Cargo.lock
	.ci/setup fuzz
	.ci/fuzz $(FUZZ_SECONDS) $(TARGET)

# The versions that the programs have.
crates/fuzz/Cargo.lock: Cargo.lock
	cp $< $@

# The rules of the BPF programs, compiled for this machine, under the address and the
# undefined-behaviour sanitizer. What parses, and shared memory, `make fuzz` runs under the first.
sanitize: setup
	.ci/setup sanitize
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CC='$(CURDIR)/.ci/clang' \
		cargo test --target-dir $(TARGET)/sanitize --target $(HOST) -p pandemonium_bpf_rules

# The programs.
build: setup
	cargo build --release --workspace

# Installs what `make build` built: programs, manual page, completions, systemd unit, documents.
install uninstall:
	PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' packaging/install $@ $(TARGET)/release

# Debian packages of the scheduler and of the tools, in target/deb.
deb: setup
	.ci/setup deb
	cargo build --release --workspace
	packaging/deb $(TARGET)/release $(TARGET)/deb

# Those packages, installed and used on a whole Debian with systemd in QEMU (some minutes). Once, root
# installs that Debian into the cache.
distribution: deb
	.ci/setup distribution
	packaging/lint
	lintian --fail-on error,warning --allow-root $(PACKAGE) $(TOOLS)
	$(VM) distribution $(PACKAGE) $(TOOLS)

# A scheduler without shared libraries, in target/static; then it schedules a machine in QEMU.
static: setup
	.ci/setup static
	packaging/static $(TARGET)/static
	cargo build --release --workspace
	$(VM) suite --scheduler $(TARGET)/static/scx_pandemonium_user --series 7.3 \
		--only check --only mix --only partial --only stopped

# The same scenarios on Linux 6.12, built from source once (about 10 minutes on two cores).
test-kernels: setup
	.ci/setup kernel
	cargo build --release --workspace
	$(VM) build-kernel
	$(VM) suite --series 6.12

# What a decision costs, against the reference policy in the same run (about a minute); then the
# workloads that most depend on a scheduler, beside the kernel's own, in exact time (some minutes).
bench: setup
	cargo bench -p pandemonium_policies --bench decision
	cargo build --release --workspace
	$(VM) lab --cpus 2 --seconds 2 --iterations 5 \
		--phases wake,burst,longrun,mixed,deadline,ipc,fairness

# Every workload with 1, 2 and 4 CPUs, beside the kernel's own scheduler and every scx_* in the
# folder PEERS, if that is named (hours).
lab: setup
	cargo build --release --workspace
	$(VM) lab $(if $(PEERS),--with $(PEERS))

# The workloads alone, linked statically where the C library allows it: runs on any machine.
probe: setup
	cargo rustc --release -p pandemonium_probe --bin pandemonium_probe -- \
		-C target-feature=+crt-static

# The programs without symbols, in target/dist; a debugger finds the symbols beside them.
dist: setup
	cargo build --release --workspace
	mkdir -p $(TARGET)/dist
	cd $(TARGET)/dist && for program in $(PROGRAMS); do \
		objcopy --only-keep-debug ../release/$$program $$program.debug && \
		strip -o $$program ../release/$$program && \
		objcopy --add-gnu-debuglink=$$program.debug $$program || exit 1; done
	cd $(TARGET)/dist && ls -sh --block-size=K *

# The crates as they are published, in target/package.
package: setup
	cargo package --workspace --exclude pandemonium_vm --exclude pandemonium_bpf_rules \
		--exclude pandemonium_seeds --no-verify

check: setup
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS=-Dwarnings cargo doc --release --workspace --no-deps

setup:
	@.ci/setup
