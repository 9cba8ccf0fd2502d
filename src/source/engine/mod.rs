//! The tracing engines: each counts KVM's tracepoints on the running host, by thread.

pub mod bpf;
pub mod perf;
pub mod tracefs;
