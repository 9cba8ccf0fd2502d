//! Reads the kernel's types, by which programs find the fields of its structs.

use crate::kvm::kernel_types::{self, KernelField};
use crate::source::events::EngineError;
use std::collections::BTreeMap;
use std::io::Read;

/// The types of this kernel. `without` says what is not known without them.
///
/// # Errors
/// A kernel without BTF.
pub(super) fn read(without: &str) -> Result<Vec<u8>, EngineError> {
    let mut btf = Vec::new();
    let limit = kernel_types::MOST_BYTES as u64;
    let read = std::fs::File::open("/sys/kernel/btf/vmlinux").and_then(|file| file.take(limit).read_to_end(&mut btf));
    let missing = |e| EngineError {
        cause: format!("{without}: /sys/kernel/btf/vmlinux: {e}"),
        fix: "boot a kernel with CONFIG_DEBUG_INFO_BTF=y".into(),
    };
    read.map(|_| btf).map_err(missing)
}

/// The offset of a field among those found.
///
/// # Errors
/// It is not among them.
pub(super) fn offset(
    found: &BTreeMap<KernelField, u32>,
    field: KernelField,
    without: &str,
) -> Result<u32, EngineError> {
    let (of, name) = field;
    found.get(&field).copied().ok_or_else(|| EngineError {
        cause: format!("{without}: this kernel's struct {of} has no {name}"),
        fix: "please report the kernel's version (uname -r)".into(),
    })
}
