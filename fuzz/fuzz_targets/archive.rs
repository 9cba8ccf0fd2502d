#![no_main]

kvmtop_fuzz::fuzz!("archive");
