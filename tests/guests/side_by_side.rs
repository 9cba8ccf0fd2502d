//! Tests that may run beside each other: those in emulated hosts, and those that wait for libvirt and measure nothing.
//! They are next to each other in the order of tests.

use crate::common::beside_others;
use crate::{faults, host_disks, interrupts, libvirt_guests, nested_arm64, nested_svm};

#[test]
fn a_libvirt_guest_that_hangs_takes_nothing_from_the_others() {
    let _beside = beside_others();
    libvirt_guests::a_guest_that_hangs_takes_nothing_from_the_others();
}

#[test]
fn arm64_is_watched() {
    let _beside = beside_others();
    nested_arm64::an_arm64_host_is_watched();
}

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

#[test]
fn many_libvirt_guests_that_hang_take_nothing_from_the_others() {
    let _beside = beside_others();
    libvirt_guests::many_guests_that_hang_take_nothing_from_the_others();
}

#[test]
fn pasted_commands_cure_badly_pinned_guests() {
    let _beside = beside_others();
    libvirt_guests::pasted_commands_cure("pasted_commands_cure_badly_pinned_guests", true);
}

/// Guests without a configuration in libvirt (`virsh create`), for which `--config` is an error.
#[test]
fn pasted_commands_cure_transient_guests() {
    let _beside = beside_others();
    libvirt_guests::pasted_commands_cure("pasted_commands_cure_transient_guests", false);
}

#[test]
fn the_libvirt_daemon_may_hang_end_and_come_back() {
    let _beside = beside_others();
    libvirt_guests::the_daemon_may_hang_end_and_come_back();
}
