# Two commands do it all on a fresh Debian or Ubuntu with a Rust toolchain: `make run` and `make test`.
# Both say which system packages they install before they do.

CARGO ?= cargo
# What building needs: a C compiler and linker (zstd is C).
BUILD_PACKAGES = gcc libc6-dev binutils
# What the real-guest tests need on top: QEMU and libvirt, an assembler for the guests' boot sectors,
# clang for the check of the shipped BPF object, perf as an oracle, cpio-able initrd tools for the emulated host.
TEST_PACKAGES = $(BUILD_PACKAGES) qemu-system-x86 libvirt-daemon-system libvirt-clients clang llvm sysstat procps util-linux

.PHONY: run build test check bpf bench clean

run: packages-build
	$(CARGO) build --release --locked
	@sh assets/run.sh target/release/kvmtop

build: packages-build
	$(CARGO) build --release --locked

# Everything that must hold: format, lints, documentation, no link to libvirt, all tests; real-guest tests counted at the end.
test: packages-test
	@sh tests/all.sh

# The BPF objects from their sources; needs clang. Commit what it writes.
bpf:
	$(MAKE) -C assets/bpf

packages-build:
	@sh assets/packages.sh $(BUILD_PACKAGES)

packages-test:
	@sh assets/packages.sh $(TEST_PACKAGES)
	@sh assets/packages.sh --first-of linux-perf linux-tools-generic

clean:
	$(CARGO) clean
