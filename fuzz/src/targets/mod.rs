//! Everything that reads what others made: one target each, for `cargo fuzz` and for `tests/fuzz.rs`.
//!
//! A target takes any bytes. It must neither panic nor exceed its [`Cost`].
#![allow(dead_code, reason = "each test uses a part of this")]

mod cost;
pub mod mutate;
mod readers;
pub mod recordings;
mod seeds;
pub mod worst;

pub use cost::Cost;

use std::path::PathBuf;

/// A reader, or a way through the whole program.
pub struct Target {
    /// Its name, also that of its file in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Reads an input.
    pub read: fn(&[u8]),
    /// Inputs as they come from real tools, besides those in `fuzz/seeds`.
    fixtures: fn() -> Vec<Vec<u8>>,
    /// What an input may cost.
    pub cost: Cost,
    /// How many mutated inputs `cargo test` tries.
    pub tries: usize,
}

const fn target(
    name: &'static str,
    read: fn(&[u8]),
    fixtures: fn() -> Vec<Vec<u8>>,
    cost: Cost,
    tries: usize,
) -> Target {
    Target { name, read, fixtures, cost, tries }
}

/// All targets.
pub const ALL: &[Target] = &[
    target("archive", readers::archive, seeds::archives, Cost::UNPACKING, 150),
    target("cmdline", readers::cmdline, seeds::cmdlines, Cost::OPTIONS, 300),
    target("config", readers::config, seeds::configs, Cost::OPTIONS, 300),
    target("cpu_list", readers::cpu_list, seeds::written, Cost::TEXT, 500),
    target("domain_capabilities", readers::domain_capabilities, seeds::domain_capabilities, Cost::TEXT, 300),
    target("domain_xml", readers::domain_xml, seeds::domain_xmls, Cost::TEXT, 300),
    target("event_totals", readers::event_totals, seeds::written, Cost::TEXT, 300),
    target("filter", readers::filter, seeds::written, Cost::TEXT, 100),
    target("kernel_log", readers::kernel_log, seeds::kernel_logs, Cost::TEXT, 300),
    target("mtree", readers::mtree, seeds::mtrees, Cost::TEXT, 300),
    target("names", readers::names, seeds::written, Cost::OPTIONS, 500),
    target("perf_data", readers::perf_data, seeds::perf_data, Cost::PERF_DATA, 60),
    target("perf_tables", readers::input, seeds::perf_tables, Cost::TEXT, 150),
    target("proc_texts", readers::proc_texts, seeds::written, Cost::TEXT, 500),
    target("process_text", readers::process_text, seeds::process_texts, Cost::TEXT, 300),
    target("qmp", readers::qmp, seeds::written, Cost::TEXT, 200),
    target("session", recordings::open, seeds::sessions, Cost::SESSION, 100),
    target("stats_text", readers::stats_text, seeds::written, Cost::TEXT, 300),
    target("time_profile", readers::time_profile, seeds::time_profiles, Cost::TEXT, 300),
    target("topology", readers::topology, seeds::topologies, Cost::TEXT, 300),
    target("trace", readers::input, seeds::traces, Cost::TEXT, 150),
    target("tracefs_format", readers::tracefs_format, seeds::tracefs_formats, Cost::TEXT, 300),
    target("virsh", readers::virsh, seeds::virsh, Cost::TEXT, 300),
    target("vmm_config", readers::vmm_config, seeds::vmm_configs, Cost::TEXT, 300),
    // The whole way, from bytes to what is shown.
    target("whole_diff", recordings::diff, seeds::samples, Cost::SAMPLES, 40),
    target("whole_html", recordings::html, seeds::samples, Cost::SAMPLES, 40),
    target("whole_input", readers::report, seeds::inputs, Cost::WHOLE, 100),
    target("whole_report", recordings::report, seeds::samples, Cost::SAMPLES, 60),
    target("whole_screen", recordings::screen, seeds::screens, Cost::SAMPLES, 40),
];

impl Target {
    /// The target of this name.
    pub fn named(name: &str) -> Option<&'static Target> {
        ALL.iter().find(|t| t.name == name)
    }

    /// Reads an input and fails if that costs too much; returns the most bytes of memory that it took. `slowness` is
    /// how many times slower than an optimised build this one is.
    ///
    /// # Panics
    /// If the reader does, or if it takes more memory or time than it may.
    pub fn check(&self, input: &[u8], slowness: u32) -> usize {
        self.cost.check(self.name, input, slowness, || (self.read)(input))
    }

    /// Undamaged inputs.
    pub fn seeds(&self) -> Vec<Vec<u8>> {
        let written = seeds::files_of(&format!("fuzz/seeds/{}", self.name)).into_iter().map(|(_, input)| input);
        (self.fixtures)().into_iter().chain(written).collect()
    }

    /// Inputs that failed once.
    pub fn regressions(&self) -> Vec<(PathBuf, Vec<u8>)> {
        seeds::files_of(&format!("fuzz/regressions/{}", self.name))
    }
}
