//! Files made elsewhere: reads what other tools recorded or printed into one [`Sample`](sample::Sample).
//!
//! [`load`] opens the files. `detect` finds each file's type by its content. `text_file` (with `kvm_stat` and `trace`)
//! and `perf_data` read it into `gathered`. `assemble` combines the files of one domain: a table of exits, the domain's
//! XML and its memory tree give named devices. A file that cannot be used is reported by name, and the others are still
//! used.

mod archive;
mod archive_members;
mod assemble;
mod counted;
mod covered_time;
mod describe;
mod description_files;
mod detect;
mod gathered;
mod group_threads;
mod guest;
mod imported;
mod kvm_stat;
mod load;
mod perf_data;
mod plain_text;
mod text_file;
mod text_readers;
mod trace;

pub use description_files::DescriptionFiles;
pub use imported::{ImportError, ImportOptions, Imported};
pub use load::load;
pub use perf_data::PerfDataFeed;

#[cfg(test)]
mod joining_tests;
#[cfg(test)]
mod tests;
