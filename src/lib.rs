//! kvmtop: what a KVM host's admin opens first when a guest is slow.

pub mod kvm;
