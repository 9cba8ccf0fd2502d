//! Knowledge of KVM, QEMU and libvirt: tables and pure parsers. No I/O, no clock.
//!
//! Every parser here takes text or bytes from a guest, a file or another program. Each is bounded
//! and never panics. Names in its result must still pass [`sanitize`], unless its documentation
//! says that they did.

pub mod cmdline;
pub mod cpu_set;
pub mod device_map;
pub mod device_property;
pub mod domain_xml;
pub mod exit_reason;
pub mod format;
pub mod guest_name;
pub mod hyperv;
pub mod isa;
pub mod kernel_log;
pub mod kernel_types;
pub mod labels;
pub mod limits;
pub mod msr;
pub mod mtree;
pub mod pattern;
pub mod thread_name;
pub mod topology;
pub mod userspace_exit;

mod untrusted_text;

pub use cpu_set::CpuSet;
pub use isa::Isa;
pub use untrusted_text::{clock_seconds, sanitize, sanitize_name, shell_quoted, without_hidden};

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// The target of a guest's access: an I/O port, a guest physical address, or a model specific
/// register.
#[derive(
    Copy,
    Clone,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Space {
    /// An x86 I/O port (tracepoint `kvm_pio`).
    #[default]
    Pio,
    /// A guest physical address (tracepoint `kvm_mmio`).
    Mmio,
    /// A model specific register (tracepoint `kvm_msr`).
    Msr,
}

impl Space {
    /// The lower-case name used in JSON: `pio`, `mmio` or `msr`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
