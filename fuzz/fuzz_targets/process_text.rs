#![no_main]

kvmtop_fuzz::fuzz!("process_text");
