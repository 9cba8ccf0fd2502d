# On a fresh Debian or Ubuntu with a Rust toolchain, `make run` starts kvmtop and `make test` checks everything.
# Both name the missing system packages before they install them. `make check` is the fast loop while editing.

CARGO ?= cargo
# zstd is written in C.
BUILD_PACKAGES = gcc libc6-dev binutils
# Real-guest tests need QEMU and libvirt; clang checks the shipped BPF object; perf's counts are compared with kvmtop's;
# a headless Chromium opens the page of `report --html`.
TEST_PACKAGES = $(BUILD_PACKAGES) qemu-system-x86 libvirt-daemon-system libvirt-clients clang llvm sysstat \
	procps util-linux

.PHONY: run build test check bench fuzz accept bpf clean packages-build packages-test

run: packages-build
	$(CARGO) build --release --locked
	@sh assets/run.sh target/release/kvmtop

build: packages-build
	$(CARGO) build --release --locked

# Format, lints, documentation, no link to libvirt, all tests. Counts at its end which real-guest tests ran.
test: packages-test
	@sh tests/all.sh

# Format, lints and all tests without guests: under two minutes on two CPUs once everything is built.
check: packages-build
	@sh tests/check.sh

# The measurements of PERFORMANCE.md. BENCH names some of them: make bench BENCH="tick start" ROUNDS=3
bench: packages-build
	@sh benches/all.sh $(BENCH)

# Fuzzes every reader (fuzz/); needs a nightly compiler and cargo-fuzz: make fuzz RUNS=1000000 TARGETS="mtree trace"
RUNS ?= 100000
fuzz: packages-build
	@sh fuzz/run.sh $(RUNS) $(TARGETS)

# Rewrites what tests compare with: snapshots, generated pages of docs/, the README's picture. Then look at `git diff`.
accept: packages-build
	INSTA_UPDATE=always KVMTOP_ACCEPT=1 KVMTOP_TEST_GUESTS=0 $(CARGO) test --locked --no-fail-fast

# Compiles the BPF objects; needs clang. Commit what it writes.
bpf:
	$(MAKE) -C assets/bpf

packages-build:
	@sh assets/packages.sh $(BUILD_PACKAGES)

packages-test:
	@sh assets/packages.sh $(TEST_PACKAGES)
	@sh assets/packages.sh --first-of linux-perf linux-tools-generic
	@sh assets/packages.sh --first-of chromium-headless-shell chromium

clean:
	$(CARGO) clean
