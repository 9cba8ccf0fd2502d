//! The Hyper-V enlightenments of KVM: their names, and what each of them needs.
//!
//! The names come from libvirt's elements in `<hyperv>`; the name of an inner element follows the
//! name of its outer element (`stimer_direct`). The clock is libvirt's timer `hypervclock`.

use std::collections::BTreeSet;

/// The Hyper-V clock (`hv-time`).
pub const CLOCK: &str = "hypervclock";

type Name = &'static str;
/// Leaf, register (its place in a [`HypervLeaf`]) and bits.
type Bits = (u32, usize, u32);
const EAX: usize = 0;
const EDX: usize = 3;

/// One enlightenment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Enlightenment {
    /// libvirt's name.
    pub name: Name,
    /// QEMU's flag without `hv-`.
    pub flag: Name,
    /// What QEMU requires beside it, or does not start (docs/system/i386/hyperv.rst, "Requires").
    pub needs: &'static [Name],
    /// Where KVM says that it offers it: all of these bits (`kvm_hyperv_properties` of QEMU's
    /// target/i386/kvm/kvm.c, Hyper-V TLFS). Empty: with any leaf.
    cpuid: &'static [Bits],
}

const FEATURES: u32 = 0x4000_0003;
const RECOMMENDATIONS: u32 = 0x4000_0004;
const NESTED: u32 = 0x4000_000a;

const fn enlightenment(
    name: Name,
    flag: Name,
    needs: &'static [Name],
    cpuid: &'static [Bits],
) -> Enlightenment {
    Enlightenment {
        name,
        flag,
        needs,
        cpuid,
    }
}

/// All that QEMU has a flag for and that switch something on.
pub const ALL: &[Enlightenment] = &[
    enlightenment(CLOCK, "time", &[], &[(FEATURES, EAX, 1 << 1 | 1 << 9)]),
    enlightenment("relaxed", "relaxed", &[], &[(RECOMMENDATIONS, EAX, 1 << 5)]),
    enlightenment("vapic", "vapic", &[], &[(FEATURES, EAX, 1 << 4)]),
    enlightenment("spinlocks", "spinlocks", &[], &[]),
    enlightenment("vpindex", "vpindex", &[], &[(FEATURES, EAX, 1 << 6)]),
    enlightenment("runtime", "runtime", &[], &[(FEATURES, EAX, 1)]),
    enlightenment("crash", "crash", &[], &[(FEATURES, EDX, 1 << 10)]),
    enlightenment("synic", "synic", &["vpindex"], &[(FEATURES, EAX, 1 << 2)]),
    enlightenment(
        "stimer",
        "stimer",
        &["vpindex", "synic", CLOCK],
        &[(FEATURES, EAX, 1 << 3)],
    ),
    enlightenment(
        "stimer_direct",
        "stimer-direct",
        &["vpindex", "synic", CLOCK, "stimer"],
        &[(FEATURES, EDX, 1 << 19)],
    ),
    enlightenment("reset", "reset", &[], &[(FEATURES, EAX, 1 << 7)]),
    enlightenment(
        "frequencies",
        "frequencies",
        &[],
        &[(FEATURES, EAX, 1 << 11), (FEATURES, EDX, 1 << 8)],
    ),
    enlightenment(
        "reenlightenment",
        "reenlightenment",
        &[],
        &[(FEATURES, EAX, 1 << 13)],
    ),
    enlightenment(
        "tlbflush",
        "tlbflush",
        &["vpindex"],
        &[(RECOMMENDATIONS, EAX, 1 << 2 | 1 << 11)],
    ),
    enlightenment(
        "tlbflush_direct",
        "tlbflush-direct",
        &["vapic"],
        &[(NESTED, EAX, 1 << 17)],
    ),
    enlightenment(
        "tlbflush_extended",
        "tlbflush-ext",
        &["vpindex", "tlbflush"],
        &[(FEATURES, EDX, 1 << 14)],
    ),
    enlightenment(
        "ipi",
        "ipi",
        &["vpindex"],
        &[(RECOMMENDATIONS, EAX, 1 << 10 | 1 << 11)],
    ),
    enlightenment(
        "evmcs",
        "evmcs",
        &["vapic"],
        &[(RECOMMENDATIONS, EAX, 1 << 14)],
    ),
    enlightenment("avic", "avic", &[], &[(RECOMMENDATIONS, EAX, 1 << 9)]),
    enlightenment(
        "syndbg",
        "syndbg",
        &["relaxed", "vpindex", "synic"],
        &[(FEATURES, EDX, 1 << 11)],
    ),
    enlightenment("emsr_bitmap", "emsr-bitmap", &[], &[(NESTED, EAX, 1 << 19)]),
    enlightenment("xmm_input", "xmm-input", &[], &[(FEATURES, EDX, 1 << 4)]),
];

/// An enlightenment by libvirt's name.
pub fn find(name: &str) -> Option<&'static Enlightenment> {
    ALL.iter().find(|known| known.name == name)
}

/// libvirt's name for a QEMU flag, both without `hv-`. A flag without a different name in libvirt
/// (`vendor-id`) keeps its spelling, with underscores.
pub fn of_flag(flag: &str) -> String {
    let flag = if flag == "apicv" { "avic" } else { flag };
    match ALL.iter().find(|known| known.flag == flag) {
        Some(known) => known.name.to_owned(),
        None => flag.replace('-', "_"),
    }
}

/// What an enlightenment needs; nothing for a name that is not known.
pub fn needs(name: &str) -> &'static [&'static str] {
    find(name).map_or(&[], |known| known.needs)
}

/// One leaf of `CPUID`: its number, and `EAX` to `EDX`.
pub type HypervLeaf = (u32, [u32; 4]);

/// The enlightenments that KVM offers by the leaves of `KVM_GET_SUPPORTED_HV_CPUID`
/// (Documentation/virt/kvm/api.rst).
pub fn offered(leaves: &[HypervLeaf]) -> BTreeSet<&'static str> {
    if leaves.is_empty() {
        return BTreeSet::new();
    }
    ALL.iter()
        .filter(|known| known.cpuid.iter().all(|bits| has_bits(leaves, bits)))
        .map(|known| known.name)
        .collect()
}

/// Whether all these bits are set.
fn has_bits(leaves: &[HypervLeaf], &(leaf, register, bits): &Bits) -> bool {
    leaves
        .iter()
        .find(|(number, _)| *number == leaf)
        .and_then(|(_, registers)| registers.get(register))
        .is_some_and(|value| value & bits == bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_needs_of_needs_are_listed() {
        for known in ALL {
            for need in known.needs {
                assert!(find(need).is_some(), "{need}");
                for further in needs(need) {
                    assert!(
                        known.needs.contains(further),
                        "{} needs {need}, and so {further}",
                        known.name
                    );
                }
            }
        }
    }

    #[test]
    fn flags_and_names() {
        for (flag, name) in [
            ("time", CLOCK),
            ("apicv", "avic"),
            ("tlbflush-ext", "tlbflush_extended"),
            ("vendor-id", "vendor_id"),
        ] {
            assert_eq!(of_flag(flag), name);
        }
    }

    #[test]
    fn offers_are_read_bit_by_bit() {
        let leaves = [
            (FEATURES, [1 << 1 | 1 << 9 | 1 << 6 | 1 << 2, 0, 0, 0]),
            (RECOMMENDATIONS, [1 << 2, 0, 0, 0]),
        ];
        let found = offered(&leaves);
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [CLOCK, "spinlocks", "synic", "vpindex"]
        );
        assert!(offered(&[]).is_empty());
    }
}
