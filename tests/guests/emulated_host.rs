//! Tests in the emulated host, side by side: they are next to each other in the order of tests.

use crate::common::beside_others;
use crate::{faults, host_disks, interrupts, nested_svm};

#[test]
fn block_devices_are_timed() {
    let _beside = beside_others();
    host_disks::an_emulated_host_is_timed();
}

#[test]
fn exits_agree_with_perf_kvm_stat() {
    let _beside = beside_others();
    nested_svm::exits_agree_with_perf_kvm_stat();
}

#[test]
fn faults_are_outlived() {
    let _beside = beside_others();
    faults::faults_of_an_emulated_host();
}

#[test]
fn interrupts_are_traced() {
    let _beside = beside_others();
    interrupts::an_emulated_host_is_traced();
}
