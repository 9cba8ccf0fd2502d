//! Tests that may run beside each other: they wait for libvirt and measure nothing. They are next
//! to each other in the order of tests.

use crate::common::beside_others;
use crate::libvirt_guests;

#[test]
fn a_libvirt_guest_that_hangs_takes_nothing_from_the_others() {
    let _beside = beside_others();
    libvirt_guests::a_guest_that_hangs_takes_nothing_from_the_others();
}

#[test]
fn many_libvirt_guests_that_hang_take_nothing_from_the_others() {
    let _beside = beside_others();
    libvirt_guests::many_guests_that_hang_take_nothing_from_the_others();
}

#[test]
fn pasted_commands_cure_badly_pinned_guests() {
    let _pins = crate::common::pinning();
    let _beside = beside_others();
    libvirt_guests::pasted_commands_cure("pasted_commands_cure_badly_pinned_guests", true);
}

/// Guests without a configuration in libvirt (`virsh create`), for which `--config` is an error.
#[test]
fn pasted_commands_cure_transient_guests() {
    let _pins = crate::common::pinning();
    let _beside = beside_others();
    libvirt_guests::pasted_commands_cure("pasted_commands_cure_transient_guests", false);
}

#[test]
fn the_libvirt_daemon_may_hang_end_and_come_back() {
    let _beside = beside_others();
    libvirt_guests::the_daemon_may_hang_end_and_come_back();
}
