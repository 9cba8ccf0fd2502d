//! A feeder of the screen, whose end the screen is told.

use crate::ui::ScreenEvent;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::SyncSender;

/// Runs a feeder and reports its end to the screen, also when it panics.
pub fn run_feeder(run: impl FnOnce() -> anyhow::Result<()>, events: &SyncSender<ScreenEvent>) {
    let ended = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => None,
        Ok(Err(e)) => Some(e),
        Err(_) => Some(anyhow::anyhow!(
            "reading samples failed by a fault in kvmtop; please report the message above"
        )),
    };
    // The screen may be gone already.
    let _ = events.send(ScreenEvent::Ended(ended));
}
