#![no_main]

kvmtop_fuzz::fuzz!("domain_capabilities");
