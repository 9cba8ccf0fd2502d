//! Reads the kernel's types (BTF): they say at which offset a struct has a field. A program takes
//! the offset from a constant, which is set before the program is loaded.

use crate::events::EngineError;
use kvm::kernel_types::{self, KernelField};
use std::collections::{BTreeMap, HashMap};
use std::io::Read;

/// A constant of a program, and the field whose offset it holds.
pub(super) type FieldConstant = (&'static str, KernelField);

/// The types of this kernel.
pub(super) fn of_kernel() -> std::io::Result<Vec<u8>> {
    btf_of("vmlinux")
}

/// The types of this kernel. `without` says, for the error, what does not work without them.
///
/// # Errors
/// A kernel without BTF.
pub(super) fn read(without: &str) -> Result<Vec<u8>, EngineError> {
    of_kernel().map_err(|e| {
        EngineError::new(
            format!("{without}: /sys/kernel/btf/vmlinux: {e}"),
            "boot a kernel with CONFIG_DEBUG_INFO_BTF=y",
        )
    })
}

/// The offsets of these fields, in structs of the kernel or of a module. `None`: the module is not
/// loaded, or is built into the kernel.
pub(super) fn with_module(
    module: &str,
    kernel: &[u8],
    fields: &[KernelField],
) -> Option<BTreeMap<KernelField, u32>> {
    let module = btf_of(module).ok()?;
    // The module's BTF leaves out the types that are in the kernel's BTF.
    let mut offsets = kernel_types::offsets(kernel, None, fields)?;
    offsets.extend(kernel_types::offsets(&module, Some(kernel), fields)?);
    Some(offsets)
}

fn btf_of(name: &str) -> std::io::Result<Vec<u8>> {
    let mut btf = Vec::new();
    let file = std::fs::File::open(format!("/sys/kernel/btf/{name}"))?;
    file.take(kernel_types::MAX_BYTES as u64)
        .read_to_end(&mut btf)?;
    Ok(btf)
}

/// The values of these constants on this kernel, by the constant's name. `without` says, for the
/// error, what does not work without them.
///
/// # Errors
/// This kernel lacks one of the fields.
pub(super) fn constants(
    kernel: &[u8],
    fields: &[FieldConstant],
    without: &str,
) -> Result<HashMap<&'static str, u32>, EngineError> {
    let wanted: Vec<KernelField> = fields.iter().map(|(_, field)| *field).collect();
    let offsets = kernel_types::offsets(kernel, None, &wanted).unwrap_or_default();
    let mut constants = HashMap::new();
    for (constant, field) in fields {
        let Some(offset) = offsets.get(field) else {
            let (record, member) = field;
            return Err(EngineError::new(
                format!("{without}: this kernel's struct {record} has no {member}"),
                "please report the kernel's version (uname -r)",
            ));
        };
        constants.insert(*constant, *offset);
    }
    Ok(constants)
}

/// The fields that lead to the reason of an exit in KVM on AMD. A `vcpu_svm` begins with its
/// `kvm_vcpu`.
const EXIT_REASON: [KernelField; 4] = [
    ("kvm_vcpu", "vcpu_id"),
    ("vcpu_svm", "vmcb"),
    ("vmcb", "control"),
    ("vmcb_control_area", "exit_code"),
];

/// The constants of `exits.h`, by which the program of a raw tracepoint reads the reason of an exit
/// on the running kernel. `None` where they are not known, as on other CPUs and for a KVM that is
/// built in: the classic tracepoint then says the reason.
pub(super) fn exit_reason(kernel: &[u8]) -> Option<HashMap<&'static str, u32>> {
    let offsets = with_module("kvm_amd", kernel, &EXIT_REASON)?;
    let [id, vmcb, control, code] = EXIT_REASON.map(|field| offsets.get(&field).copied());
    Some(
        [
            ("at_vcpu_id", id?),
            ("at_vmcb", vmcb?),
            // A vmcb has the struct of the code within it.
            ("at_exit_code", control? + code?),
        ]
        .into(),
    )
}

/// The constant of `scheduler.h` with the offset of a `task_struct`'s state; `None` where that is
/// not known.
pub(super) fn task_state(kernel: &[u8]) -> Option<(&'static str, u32)> {
    // A kernel has exactly one of these fields: Linux 5.14 renamed it.
    let offsets = kernel_types::offsets(
        kernel,
        None,
        &[("task_struct", "__state"), ("task_struct", "state")],
    )?;
    let offset = offsets.into_values().next()?;
    Some(("at_state", offset))
}
