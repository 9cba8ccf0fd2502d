#![no_main]

kvmtop_fuzz::fuzz!("event_totals");
