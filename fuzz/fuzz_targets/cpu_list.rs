#![no_main]

kvmtop_fuzz::fuzz!("cpu_list");
