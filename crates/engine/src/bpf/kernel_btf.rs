//! Reads the kernel's types, by which programs find the fields of its structs.

use crate::events::EngineError;
use kvm::kernel_types::{self, KernelField};
use std::collections::{BTreeMap, HashMap};
use std::io::Read;

/// The types of this kernel. `without` says what is not known without them.
///
/// # Errors
/// A kernel without BTF.
pub(super) fn read(without: &str) -> Result<Vec<u8>, EngineError> {
    btf_of("vmlinux").map_err(|e| EngineError {
        cause: format!("{without}: /sys/kernel/btf/vmlinux: {e}"),
        fix: "boot a kernel with CONFIG_DEBUG_INFO_BTF=y".into(),
    })
}

/// The offsets of these fields by the BTF of the kernel and of a module. `None`: the module is not
/// loaded, or is built into the kernel.
pub(super) fn with_module(
    module: &str,
    kernel: &[u8],
    fields: &[KernelField],
) -> Option<BTreeMap<KernelField, u32>> {
    let module = btf_of(module).ok()?;
    // What the kernel itself uses as well is not said again in the module's.
    let mut found = kernel_types::offsets(kernel, None, fields)?;
    found.extend(kernel_types::offsets(&module, Some(kernel), fields)?);
    Some(found)
}

fn btf_of(name: &str) -> std::io::Result<Vec<u8>> {
    let mut btf = Vec::new();
    let file = std::fs::File::open(format!("/sys/kernel/btf/{name}"))?;
    file.take(kernel_types::MAX_BYTES as u64)
        .read_to_end(&mut btf)?;
    Ok(btf)
}

/// The constants of a program that hold the places of these fields.
///
/// # Errors
/// This kernel has one of them nowhere.
pub(super) fn constants(
    kernel: &[u8],
    fields: &[(&'static str, KernelField)],
    without: &str,
) -> Result<HashMap<&'static str, u32>, EngineError> {
    let wanted: Vec<KernelField> = fields.iter().map(|(_, field)| *field).collect();
    let found = kernel_types::offsets(kernel, None, &wanted).unwrap_or_default();
    let mut constants = HashMap::new();
    for (constant, field) in fields {
        let Some(place) = found.get(field) else {
            return Err(EngineError {
                cause: format!(
                    "{without}: this kernel's struct {} has no {}",
                    field.0, field.1
                ),
                fix: "please report the kernel's version (uname -r)".into(),
            });
        };
        constants.insert(*constant, *place);
    }
    Ok(constants)
}

/// Where KVM on AMD keeps the reason of an exit.
const EXIT_REASON: [KernelField; 4] = [
    ("kvm_vcpu", "vcpu_id"),
    ("vcpu_svm", "vmcb"),
    ("vmcb", "control"),
    ("vmcb_control_area", "exit_code"),
];

/// The constants of `exits.h`, by which a raw tracepoint reads the reason on the running kernel.
/// `None` where they are not known, as on other CPUs and for a KVM that is built in: the classic
/// tracepoint then says the reason.
pub(super) fn exit_reason(kernel: &[u8]) -> Option<HashMap<&'static str, u32>> {
    let found = with_module("kvm_amd", kernel, &EXIT_REASON)?;
    let [id, vmcb, control, code] = EXIT_REASON.map(|field| found.get(&field).copied());
    Some(
        [
            ("at_vcpu_id", id?),
            ("at_vmcb", vmcb?),
            ("at_exit_code", control? + code?),
        ]
        .into(),
    )
}

/// The constant of `scheduler.h` that says where a `task_struct` has its state; `None` where that
/// is not known.
pub(super) fn task_state(kernel: &[u8]) -> Option<(&'static str, u32)> {
    let found = kernel_types::offsets(
        kernel,
        None,
        &[("task_struct", "__state"), ("task_struct", "state")],
    )?;
    found.into_values().next().map(|at| ("at_state", at))
}
