//! The largest numbers that KVM, QEMU, libvirt and Linux allow. A number in a file or a command
//! line that decides how much is allocated, looped over or printed is compared with these, and what
//! is beyond is refused with its reason.

use super::sanitize;

/// vCPUs of a guest. `CONFIG_KVM_MAX_NR_VCPUS` (`arch/x86/kvm/Kconfig`) ends at 4096, as QEMU's q35
/// does (`max_cpus`, `hw/i386/pc_q35.c`); other architectures have fewer (`KVM_MAX_VCPUS` of their
/// `asm/kvm_host.h`).
pub const VCPUS: u32 = 4096;

/// Numbers of vCPUs. x86 numbers them by APIC id, with gaps: `KVM_MAX_VCPU_IDS` is four times
/// `KVM_MAX_VCPUS` (`arch/x86/include/asm/kvm_host.h`).
pub const VCPU_IDS: u32 = 4 * VCPUS;

/// `IOThread`s of a guest. Neither libvirt nor QEMU has a limit; more than one for each possible
/// vCPU serves nothing.
pub const IOTHREADS: u32 = VCPUS;

/// NUMA cells of a guest: `MAX_NODES` of QEMU (`include/system/numa.h`).
pub const NUMA_CELLS: u32 = 128;

/// CPUs and NUMA nodes of a host: `NR_CPUS_RANGE_END` with `MAXSMP` (`arch/x86/Kconfig`), the
/// largest of all architectures.
pub const HOST_CPUS: u32 = 8192;

/// Bytes of a guest's memory: 52 bits of physical address (Intel SDM volume 3A, 4.1.4; AMD APM
/// volume 2, 5.1).
pub const GUEST_MEMORY: u64 = 1 << 52;

/// Elements of one kind in a domain XML or of a QEMU command line: vCPUs, pins, devices.
pub const ELEMENTS: usize = 8192;

/// The sentence about a number that is larger than any real one; `what` it is in the words of the
/// file (`<vcpu>`).
pub(crate) fn too_large(what: &str, value: &str, most: u64) -> String {
    format!(
        "{} is {}, but the largest possible number is {most}",
        sanitize(what, 80),
        sanitize(value.trim(), 40)
    )
}

/// Whether a text has a number above `most`.
pub fn beyond(text: &str, most: u64) -> bool {
    text.split(|c: char| !c.is_ascii_digit())
        .any(|digits| !digits.is_empty() && !digits.parse::<u64>().is_ok_and(|n| n <= most))
}

/// Refuses a text that has a number above `most`.
pub(crate) fn check(what: &str, text: &str, most: u64) -> anyhow::Result<()> {
    anyhow::ensure!(
        !beyond(text, most),
        "not a KVM guest's: {}",
        too_large(what, text, most)
    );
    Ok(())
}

/// A size in bytes by libvirt's units, if a guest can have it.
pub(crate) fn bytes(value: &str, unit: &str) -> Option<u64> {
    let factor: u64 = match unit {
        "b" | "bytes" => 1,
        "KB" => 1000,
        "k" | "K" | "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "M" | "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "G" | "GiB" => 1 << 30,
        "TB" => 1_000_000_000_000,
        "T" | "TiB" => 1 << 40,
        _ => return None,
    };
    value
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(factor)
        .filter(|bytes| *bytes <= GUEST_MEMORY)
}
