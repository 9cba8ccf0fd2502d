//! What feeds the screen: a thread that fetches samples and judges them, so that keys never wait
//! for either.

mod back_in_time;
mod feeder_thread;
pub(crate) mod live_feeder;
mod player;

pub use live_feeder::live;
pub use player::replay;
