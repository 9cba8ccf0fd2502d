#![no_main]

kvmtop_fuzz::fuzz!("tracefs_format");
