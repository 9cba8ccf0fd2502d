//! Reads a `perf.data` of `perf kvm stat record`, or of any `perf record` with kvm tracepoints: of any age
//! and machine, written to a file or a pipe, compressed or not. It is read as a stream, whatever its size.
//!
//! Counts are perf's own (`counters`). Times cover the whole exit unless perf's times are requested.

mod counters;
mod event_formats;
mod event_reader;
mod header;
mod recording;
mod records;

pub use recording::PerfDataFeed;
pub(super) use recording::read;
