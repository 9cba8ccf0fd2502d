# On a fresh Debian or Ubuntu with a Rust toolchain, `make run` starts kvmtop and `make test` checks everything.
# Both name the missing system packages before they install them. `make check` is the fast loop while editing.

CARGO ?= cargo
# zstd is written in C; libvirt's binding finds libvirt's headers by pkg-config.
BUILD_PACKAGES = gcc libc6-dev binutils libvirt-dev pkg-config
# Real-guest tests need QEMU and libvirt; clang checks the shipped BPF object; perf's counts are compared with kvmtop's;
# a headless Chromium opens the page of `report --html`; Prometheus scrapes `export`. For hosts that QEMU emulates,
# kernels are packed with cpio, and kvmtop is built for arm64.
TEST_PACKAGES = $(BUILD_PACKAGES) qemu-system-x86 libvirt-daemon-system libvirt-clients clang llvm sysstat \
	procps util-linux libcap2-bin mount dmsetup iproute2 python3-msgpack python3-zstandard cpio xz-utils \
	qemu-system-arm gcc-aarch64-linux-gnu libc6-dev-arm64-cross

# The static binary's C code is compiled against musl; dpkg-dev finds the libraries that the .deb depends on.
PACKAGING_PACKAGES = $(BUILD_PACKAGES) musl-tools dpkg-dev git
# What installs, reads and checks the packages; debootstrap makes the clean root that the .deb goes into.
PACKAGING_TEST_PACKAGES = debootstrap rpm cpio systemd man-db groff mandoc bash zsh fish lintian
AARCH64_PACKAGES = gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static libvirt-dev pkg-config

.PHONY: run build test hosts check bench fuzz deny accept bpf clean packages packages-test aarch64 needs-build
.PHONY: needs-test

run: needs-build
	$(CARGO) build --release --locked
	@sh assets/run.sh target/release/kvmtop

build: needs-build
	$(CARGO) build --release --locked

# Format, lints, documentation, no link to libvirt, all tests of this machine. Counts at its end which real-guest tests
# ran.
test: needs-test
	@sh tests/all.sh

# Other kernels and processors: fetches kernels of Debian, from 5.10 to the newest, and runs kvmtop on each in a host
# that QEMU emulates. Says at its end what ran where; takes less than half an hour on two CPUs.
hosts: needs-test
	@sh tests/hosts.sh

# Format, lints and all tests without guests: under two minutes on two CPUs once everything is built.
check: needs-build
	@sh tests/check.sh

# The measurements of PERFORMANCE.md. BENCH names some of them: make bench BENCH="tick start" ROUNDS=3
bench: needs-build
	@sh benches/all.sh $(BENCH)

# Fuzzes every reader (fuzz/); needs a nightly compiler and cargo-fuzz: make fuzz RUNS=1000000 READERS="mtree trace"
RUNS ?= 100000
fuzz: needs-build
	@sh fuzz/run.sh $(RUNS) $(READERS)

# Licences, sources, versions and known flaws of the dependencies (deny.toml); needs cargo-deny, and the network for the
# database of flaws, which is asked last. Without either, `make check` still holds licences and sources by
# tests/it/dependencies.rs.
deny:
	$(CARGO) deny --locked check licenses bans sources
	$(CARGO) deny --locked check advisories

# Rewrites what tests compare with: snapshots, generated pages of docs/, the README's picture. Then look at `git diff`.
accept: needs-build
	INSTA_UPDATE=always KVMTOP_ACCEPT=1 KVMTOP_TEST_GUESTS=0 $(CARGO) test --workspace --locked --no-fail-fast

# Compiles the BPF objects; needs clang. Commit what it writes.
bpf:
	$(MAKE) -C crates/engine/bpf

# A .deb, an .rpm, a static binary and the source archive, in target/packages.
packages:
	@sh assets/packages.sh $(PACKAGING_PACKAGES)
	@sh assets/packaging/build.sh

# The packages are installed, run, compared and removed.
packages-test: packages
	@sh assets/packages.sh $(PACKAGING_TEST_PACKAGES)
	KVMTOP_TEST_PACKAGES=1 $(CARGO) test --locked --test it -- --nocapture manual:: packages::

# Builds and links for 64-bit Arm, and runs the result under QEMU's user emulation.
aarch64:
	@sh assets/packages.sh $(AARCH64_PACKAGES) || true
	@sh assets/packaging/aarch64.sh

needs-build:
	@sh assets/packages.sh $(BUILD_PACKAGES)

needs-test:
	@sh assets/packages.sh $(TEST_PACKAGES)
	@sh assets/packages.sh --idle prometheus.service prometheus
	@sh assets/packages.sh --first-of linux-perf linux-tools-generic
	@sh assets/packages.sh --first-of chromium-headless-shell chromium

clean:
	$(CARGO) clean
