//! The Hyper-V enlightenments that this host's KVM offers: what QEMU asks for before it starts a
//! guest with one.
#![allow(unsafe_code, reason = "KVM_GET_SUPPORTED_HV_CPUID has no wrapper")]

use kvm::hyperv::{HypervLeaf, offered};
use std::fs::File;
use std::os::fd::AsRawFd;

/// `_IOWR(KVMIO, 0xc1, struct kvm_cpuid2)` (include/uapi/linux/kvm.h). On `/dev/kvm` itself since
/// Linux 5.11; before, and on other machines than x86, it fails.
const KVM_GET_SUPPORTED_HV_CPUID: libc::c_ulong = 0xc008_aec1;
/// Room for this many leaves; KVM fills ten (`kvm_get_hv_cpuid` of arch/x86/kvm/hyperv.c).
const LEAVES: usize = 64;

/// `struct kvm_cpuid_entry2` (arch/x86/include/uapi/asm/kvm.h).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CpuidEntry {
    function: u32,
    index: u32,
    flags: u32,
    registers: [u32; 4],
    padding: [u32; 3],
}

/// `struct kvm_cpuid2` with room for its entries.
#[repr(C)]
struct Cpuid {
    count: u32,
    padding: u32,
    entries: [CpuidEntry; LEAVES],
}

/// The enlightenments by the names that libvirt uses; empty where KVM offers nothing. `None` where
/// KVM does not answer, and on another architecture than x86.
pub(super) fn enlightenments() -> Option<Vec<&'static str>> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    let kvm = File::open("/dev/kvm").ok()?;
    let mut cpuid = Cpuid {
        count: LEAVES as u32,
        padding: 0,
        entries: [CpuidEntry::default(); LEAVES],
    };
    // SAFETY: the kernel writes at most `count` entries after the head, and `cpuid` has room for
    // them.
    let result = unsafe {
        libc::ioctl(
            kvm.as_raw_fd(),
            KVM_GET_SUPPORTED_HV_CPUID as _,
            &raw mut cpuid,
        )
    };
    if result != 0 {
        return None;
    }
    let leaves: Vec<HypervLeaf> = cpuid
        .entries
        .iter()
        .take(cpuid.count as usize)
        .map(|entry| (entry.function, entry.registers))
        .collect();
    Some(offered(&leaves).into_iter().collect())
}
