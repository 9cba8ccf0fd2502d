//! Hosts that QEMU emulates, each with a kernel of Debian. `make hosts` runs these tests, `make
//! test` does not.

use crate::common::nested::{Host, Machine};
use crate::nested_svm::{SvmHost, exits_agree_with_perf_kvm_stat};
use crate::{faults, host_disks, interrupts, nested_arm64, pauses};

const OF_BULLSEYE: Host = Host {
    machine: Machine::Amd,
    suite: "bullseye",
};
const OF_TRIXIE: Host = Host {
    machine: Machine::Amd,
    suite: "trixie",
};
const OF_SID: Host = Host {
    machine: Machine::Amd,
    suite: "sid",
};
const OF_INSTRUCTIONS: Host = Host {
    machine: Machine::AmdOfInstructions,
    suite: "bookworm",
};
const OF_BOOKWORM: SvmHost = SvmHost {
    host: Host::AMD,
    halts: true,
    has_types: true,
    preempts_programs: false,
};
/// Emulated, vCPUs that only halt do not continue from 6.12 on.
const NO_HALTS: bool = false;

/// The last version that charges BPF to the limit of locked memory. Its modules have no types.
#[test]
#[ignore = "boots an emulated host: make hosts"]
fn amd_5_10() {
    exits_agree_with_perf_kvm_stat(SvmHost {
        host: OF_BULLSEYE,
        has_types: false,
        ..OF_BOOKWORM
    });
}

/// Its types are hidden, so that `kvm_exit` is read as on a kernel without them.
#[test]
#[ignore = "boots an emulated host: make hosts"]
fn amd_6_1() {
    exits_agree_with_perf_kvm_stat(SvmHost {
        has_types: false,
        ..OF_BOOKWORM
    });
}

#[test]
#[ignore = "boots an emulated host: make hosts"]
fn amd_6_1_of_instructions() {
    exits_agree_with_perf_kvm_stat(SvmHost {
        host: OF_INSTRUCTIONS,
        ..OF_BOOKWORM
    });
}

#[test]
#[ignore = "boots an emulated host: make hosts"]
fn amd_6_12() {
    exits_agree_with_perf_kvm_stat(SvmHost {
        host: OF_TRIXIE,
        halts: NO_HALTS,
        ..OF_BOOKWORM
    });
}

#[test]
#[ignore = "boots an emulated host: make hosts"]
fn amd_newest() {
    exits_agree_with_perf_kvm_stat(SvmHost {
        host: OF_SID,
        halts: NO_HALTS,
        preempts_programs: true,
        ..OF_BOOKWORM
    });
}

#[test]
#[ignore = "boots an emulated host: make hosts"]
fn arm64_6_1() {
    nested_arm64::an_arm64_host_is_watched();
}

#[test]
#[ignore = "boots an emulated host: make hosts"]
fn block_devices_are_timed() {
    host_disks::an_emulated_host_is_timed();
}

#[test]
#[ignore = "boots an emulated host: make hosts"]
fn faults_are_outlived() {
    faults::faults_of_an_emulated_host();
}

#[test]
#[ignore = "boots an emulated host: make hosts"]
fn interrupts_are_traced() {
    interrupts::an_emulated_host_is_traced();
}

/// The kernel's scheduler does not say there how a thread left its CPU.
#[test]
#[ignore = "boots an emulated host: make hosts"]
fn pauses_of_a_guest_on_5_10() {
    pauses::a_pause_is_no_time_of_an_exit(OF_BULLSEYE);
}

#[test]
#[ignore = "boots an emulated host: make hosts"]
fn pauses_of_a_guest_on_6_1() {
    pauses::a_pause_is_no_time_of_an_exit(Host::AMD);
}
