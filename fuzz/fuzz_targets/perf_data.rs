#![no_main]

kvmtop_fuzz::fuzz!("perf_data");
