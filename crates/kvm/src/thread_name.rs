//! The role of a VMM's thread, by its name (`comm`, at most 15 bytes).

use super::pattern::{Pattern, number, pid};
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

/// The role of a thread for its guest.
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
    Display,
    IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Role {
    /// Runs a virtual CPU.
    Vcpu,
    /// The VMM's main thread: monitor, timers, device emulation off the vCPUs.
    Emulator,
    /// A dedicated block or network I/O thread (libvirt `<iothreads>`).
    Iothread,
    /// Kernel-side virtio work (`vhost-PID`).
    Vhost,
    /// A helper: thread pool, display, migration, RCU.
    Worker,
    /// Not recognised.
    #[default]
    Other,
}

impl Role {
    /// The lower-case name used in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The name of a thread that an admin uses: `vcpu 3`, `emulator`, `iothread 1`, else the thread's
/// own.
pub fn label(role: Role, index: Option<u32>, tid: i32, comm: &str) -> String {
    match (role, index) {
        (Role::Vcpu, Some(n)) => format!("vcpu {n}"),
        (Role::Emulator, _) => "emulator".into(),
        (Role::Iothread, Some(n)) => format!("iothread {n}"),
        (Role::Vhost, _) => format!("vhost {tid}"),
        _ => comm.into(),
    }
}

/// Role of a thread, and the number of its vCPU or `IOThread` where the name holds one. `is_main`
/// says that the thread id is the process id.
pub fn classify(comm: &str, is_main: bool) -> (Role, Option<u32>) {
    if is_main {
        return (Role::Emulator, None);
    }
    match (vcpu_index(comm), comm.strip_prefix("IO ")) {
        (Some(index), _) => (Role::Vcpu, Some(index)),
        _ if WORKER.is_match(comm) => (Role::Worker, None),
        (_, Some(name)) => (
            Role::Iothread,
            name.strip_prefix("iothread").and_then(|n| n.parse().ok()),
        ),
        _ if comm.starts_with("vhost-") => (Role::Vhost, None),
        _ => (Role::Other, None),
    }
}

/// QEMU's monitor thread, `IO mon_iothread`, has the name of an IOThread but serves no disk.
static WORKER: Pattern = Pattern::new(concat!(
    "^(?:(?:worker|call_rcu|vnc_worker|SPICE Worker|live_migration|vmm|fc_api|gmain|TPM \
        emulator|return path|",
    "signal_handler)$|pool-|mig/|multifd|postcopy|colo|iou-wrk-|iou-sqp-|kvm-pit/|kvm-nx-lpage|",
    "threaded-|bg_snapshot|_disk|_net|IO mon_iothread)",
));
/// QEMU `CPU 3/KVM`, Firecracker `fc_vcpu 3`, cloud-hypervisor `vcpu3`, crosvm `crosvm_vcpu3`,
/// kvmtool `kvm-vcpu-3`. A long number leaves less room for QEMU's suffix in the 15 bytes of a
/// name.
static VCPU: Pattern = Pattern::new(concat!(
    "^(?:CPU (?P<qemu>[0-9]{1,5})/(?:K(?:VM?)?|T(?:CG?)?|H(?:VF?)?)|",
    "(?:fc_vcpu|crosvm_vcpu|kvm-vcpu-|vcpu)[ _-]*(?P<other>[0-9]{1,5}))$",
));
static OWNED: Pattern = Pattern::new("^(?:vhost-|kvm-pit/)(?P<pid>[0-9]+)$");

/// The vCPU number in a thread name.
pub fn vcpu_index(comm: &str) -> Option<u32> {
    let found = VCPU.captures(comm)?;
    number(&found, "qemu").or_else(|| number(&found, "other"))
}

/// Whether a process is a QEMU for whole machines, by its name; `kvm` is Proxmox's.
pub fn is_qemu(comm: &str) -> bool {
    comm.starts_with("qemu-system-") || matches!(comm, "qemu-kvm" | "kvm")
}

/// The process that a kernel thread `vhost-PID` or `kvm-pit/PID` works for.
pub fn owner(comm: &str) -> Option<i32> {
    pid(&OWNED.captures(comm)?, "pid")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_every_vmm_are_known() {
        for (comm, role, index) in [
            ("CPU 0/KVM", Role::Vcpu, Some(0)),
            ("CPU 127/KVM", Role::Vcpu, Some(127)),
            ("CPU 3/TCG", Role::Vcpu, Some(3)),
            ("fc_vcpu 0", Role::Vcpu, Some(0)),
            ("fc_vcpu12", Role::Vcpu, Some(12)),
            ("vcpu0", Role::Vcpu, Some(0)),
            ("crosvm_vcpu0", Role::Vcpu, Some(0)),
            ("kvm-vcpu-0", Role::Vcpu, Some(0)),
            ("kvm-vcpu-12", Role::Vcpu, Some(12)),
            ("kvm-vcpu-", Role::Other, None),
            ("IO iothread1", Role::Iothread, Some(1)),
            ("IO disk-thread", Role::Iothread, None),
            ("IO mon_iothread", Role::Worker, None),
            ("vhost-1234", Role::Vhost, None),
            ("worker", Role::Worker, None),
            ("call_rcu", Role::Worker, None),
            ("vnc_worker", Role::Worker, None),
            ("SPICE Worker", Role::Worker, None),
            ("live_migration", Role::Worker, None),
            ("kvm-pit/1234", Role::Worker, None),
            ("kvm-nx-lpage-re", Role::Worker, None),
            ("qemu-system-x86", Role::Other, None),
            ("CPU x/KVM", Role::Other, None),
            ("CPU /KVM", Role::Other, None),
            ("vcpu", Role::Other, None),
        ] {
            assert_eq!(classify(comm, false), (role, index), "{comm}");
        }
    }

    #[test]
    fn the_main_thread_is_the_emulator_whatever_its_name() {
        assert_eq!(classify("CPU 0/KVM", true), (Role::Emulator, None));
    }

    #[test]
    fn kernel_threads_name_their_owner() {
        assert_eq!(owner("vhost-77"), Some(77));
        assert_eq!(owner("vhost-x"), None);
        assert_eq!(owner("kvm-pit/77"), Some(77));
        assert_eq!(
            serde_json::to_string(&Role::Iothread).unwrap(),
            "\"iothread\""
        );
    }

    proptest! {
        #[test]
        fn any_name_is_classified(comm in any::<String>()) {
            let _ = classify(&comm, false);
        }
    }
}
