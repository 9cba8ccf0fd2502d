#![no_main]

kvmtop_fuzz::fuzz!("whole_report");
