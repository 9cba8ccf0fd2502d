//! When samples are taken, and the commands that come in between.

use super::{Collector, CollectorCommand};
use sample::{Feed, Sample};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

impl Collector {
    /// Monitors are asked right after the first sample: 200 of them take the CPUs that it needs.
    fn ask_after_the_first(&mut self) {
        let is_first = self.read_ns.is_none();
        if let Some(metadata) = &mut self.options.metadata
            && metadata.hold_questions(is_first)
            && !is_first
        {
            self.inform_all();
        }
    }

    /// Waits until a sample is due; returns whether to end the feed.
    fn wait(&mut self) -> bool {
        loop {
            let now_ns = (self.options.clock)().mono_ns;
            let left =
                Duration::from_nanos(self.next_ns.map_or(0, |next| next.saturating_sub(now_ns)));
            match self.options.commands.recv_timeout(left) {
                Ok(CollectorCommand::Stop) => return true,
                Ok(command) => {
                    self.refused = self.execute(command).err();
                    continue;
                }
                // All senders are gone, and receiving from a closed channel does not wait.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(left),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if left.is_zero() {
                let interval = self.options.interval.as_nanos() as u64;
                // After a tick that is late by more than an interval the schedule starts again from
                // now.
                let due = self.next_ns.unwrap_or(now_ns) + interval;
                self.next_ns = Some(if due > now_ns { due } else { now_ns + interval });
                return false;
            }
        }
    }
}

impl Feed for Collector {
    fn next(&mut self) -> anyhow::Result<Option<Sample>> {
        self.ask_after_the_first();
        Ok(if self.wait() { None } else { Some(self.tick()) })
    }
}
