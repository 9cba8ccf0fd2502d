#![no_main]

kvmtop_fuzz::fuzz!("vmm_config");
