//! Where KVM on AMD keeps the reason of an exit, so that a raw tracepoint can read it (`crates/engine/bpf/exits.h`).

use super::kernel_btf;
use kvm::kernel_types::KernelField;
use std::collections::{BTreeMap, HashMap};

const FIELDS: [KernelField; 4] =
    [("kvm_vcpu", "vcpu_id"), ("vcpu_svm", "vmcb"), ("vmcb", "control"), ("vmcb_control_area", "exit_code")];

/// The constants of `exits.h` for the running kernel. `None` where they are not known, as on other CPUs and for a KVM
/// that is built in: the classic tracepoint then says the reason.
pub(super) fn places() -> Option<HashMap<&'static str, u32>> {
    let kernel = kernel_btf::read("").ok()?;
    constants(&kernel_btf::with_module("kvm_amd", &kernel, &FIELDS)?)
}

fn constants(found: &BTreeMap<KernelField, u32>) -> Option<HashMap<&'static str, u32>> {
    let [id, vmcb, control, code] = FIELDS.each_ref().map(|field| found.get(field).copied());
    Some([("at_vcpu_id", id?), ("at_vmcb", vmcb?), ("at_exit_code", control? + code?)].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_places_or_none() {
        let mut known: BTreeMap<KernelField, u32> = FIELDS.into_iter().zip([8, 6552, 4, 112]).collect();
        assert_eq!(constants(&known), Some([("at_vcpu_id", 8), ("at_vmcb", 6552), ("at_exit_code", 116)].into()));
        known.remove(&FIELDS[0]);
        assert_eq!(constants(&known), None);
    }
}
