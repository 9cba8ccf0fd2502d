//! Samples the stacks of a guest's threads when the screen asks for it.

use crate::ui::ProfileRequest;
use engine::profile;
use sample::{Feed, Sample, StackProfile};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long stacks are sampled.
const LENGTH: Duration = Duration::from_secs(2);
/// Different stacks that are kept: a recording holds them.
const MAX_STACKS: usize = 400;

/// A profile, and the process that it is of.
pub struct TakenProfile {
    pid: i32,
    start_ticks: u64,
    stacks: StackProfile,
}

/// Starts the thread that samples stacks. Of the calling thread's rights it keeps only the rights for profiling. It
/// waits for requests, and has nothing attached meanwhile. `stop` ends a sampling early. Returns where to request the
/// stacks of guests, one after the other, and what was sampled.
///
/// # Errors
/// If the thread cannot be started.
pub fn start(stop: Arc<AtomicBool>) -> io::Result<(Sender<ProfileRequest>, Receiver<TakenProfile>)> {
    let (requests, asked) = channel::<ProfileRequest>();
    let (done, taken) = channel();
    std::thread::Builder::new().name("kvmtop/profile".into()).spawn(move || {
        // Without the right to give up rights, the thread continues with them; `keep` on the main thread says so.
        let _ = rights::keep(rights::for_profile());
        for ProfileRequest { pid, start_ticks, threads } in asked {
            let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
            let stacks = match profile::sample(pid, &threads, LENGTH, || stop.load(Ordering::Relaxed)) {
                Ok(stacks) => stacks.limited(MAX_STACKS),
                Err(why) => StackProfile::refused(now_ms, threads, format!("{}; {}", why.cause, why.fix)),
            };
            if done.send(TakenProfile { pid, start_ticks, stacks }).is_err() {
                return;
            }
        }
    })?;
    Ok((requests, taken))
}

/// A feed whose samples have the profiles that were taken before them.
pub struct ProfiledFeed<F> {
    /// The samples.
    pub feed: F,
    /// What was sampled.
    pub taken: Receiver<TakenProfile>,
}

impl<F: Feed> Feed for ProfiledFeed<F> {
    fn next(&mut self) -> anyhow::Result<Option<Sample>> {
        let Some(mut sample) = self.feed.next()? else { return Ok(None) };
        for TakenProfile { pid, start_ticks, stacks } in self.taken.try_iter() {
            let is_it = |pid_of: Option<i32>, ticks: u64| (pid_of, ticks) == (Some(pid), start_ticks);
            let guest = sample.domains.iter_mut().find(|d| is_it(d.facts.pid, d.facts.start_ticks));
            // A guest that ended meanwhile is gone with its profile.
            if let Some(guest) = guest {
                guest.profile = Some(Arc::new(stacks));
            }
        }
        Ok(Some(sample))
    }
}
