#![no_main]

kvmtop_fuzz::fuzz!("kernel_log");
