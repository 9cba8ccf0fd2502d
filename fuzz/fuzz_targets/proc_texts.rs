#![no_main]

kvmtop_fuzz::fuzz!("proc_texts");
