//! Timers and clocks: which of them the guest uses, and which it should use instead.

mod acpi_pm;
mod enlightenments;
mod hpet;
mod hyperv_clock;
mod idle_wakeups;
mod pc_timer;
mod pit;
mod rtc;
pub(super) mod rules;
mod texts;
mod tick_storm;
