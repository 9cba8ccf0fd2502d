#![no_main]

kvmtop_fuzz::fuzz!("stats_text");
