#![no_main]

kvmtop_fuzz::fuzz!("time_profile");
