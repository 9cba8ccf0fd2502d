//! What feeds the screen: a thread that fetches samples and judges them, so that keys never wait for either.

pub(crate) mod live_feeder;
mod player;

pub use live_feeder::live;
pub use player::replay;

use crate::ui::ScreenEvent;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::SyncSender;

/// Runs a feeder and reports its end to the screen, also when it panics.
fn run_feeder(run: impl FnOnce() -> anyhow::Result<()>, events: &SyncSender<ScreenEvent>) {
    let ended = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => None,
        Ok(Err(e)) => Some(e),
        Err(_) => Some(anyhow::anyhow!("reading samples failed by a fault in kvmtop; please report the message above")),
    };
    // The screen may be gone already.
    let _ = events.send(ScreenEvent::Ended(ended));
}
