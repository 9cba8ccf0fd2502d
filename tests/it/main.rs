//! The program as its users meet it: one test binary, its modules by what they test. Tests of real
//! guests are in `tests/guests`.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;
use testkit::inputs;
#[path = "../../fuzz/readers.rs"]
mod readers;
#[path = "../../fuzz/seeds.rs"]
mod seeds;

mod architecture;
mod cases;
mod check_commands;
mod chromium;
mod circles;
mod cli_program;
mod dependencies;
mod every_key;
mod forged_recordings;
mod forged_texts;
mod fuzz;
mod growth;
mod hostile_fixes;
mod hostile_memory;
mod html_page;
mod import_perf_data;
mod json_schema;
mod lost_terminal;
mod manual;
mod packages;
mod picture;
mod readme;
mod session_files;
mod session_format;
mod session_owner;
mod session_round_trip;
mod svg;
mod whole;

guest_process!();
