//! The tables that `perf kvm stat report` and `live` print, as people paste them.
//!
//! Tables of every perf version are read: with and without the minimum, maximum and mean columns
//! (tools/perf/builtin-kvm.c, `print_result`), for vmexit, ioport, mmio and msr, one or many in a text, between prose,
//! quoted and wrapped by mail.

mod counters;
mod headings;
mod row;
mod scanner;

pub(super) use counters::guest_counters;
pub(super) use scanner::{find_tables, looks_like};

#[cfg(test)]
mod tests;
