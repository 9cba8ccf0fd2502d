//! Where the sampling thread leaves its metrics for the thread that serves. Both hold the lock for as long as it takes
//! to copy a pointer.

use metrics::HostMetrics;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The last metrics, and when they came.
#[derive(Debug, Clone, Default)]
pub struct LastMetrics {
    /// The metrics; `None` before the first sample.
    pub metrics: Option<Arc<HostMetrics>>,
    /// How old they are.
    pub age: Duration,
    /// Their maximum age while samples are taken.
    pub oldest: Duration,
}

/// Where the sampling thread puts its metrics and the server finds them.
#[derive(Debug)]
pub struct Published {
    last: Mutex<(Option<Arc<HostMetrics>>, Instant)>,
    oldest: Duration,
}

impl Published {
    /// A place without metrics.
    pub fn new(interval: Duration) -> Arc<Self> {
        let oldest = interval * 3 + Duration::from_secs(5);
        Arc::new(Self { last: Mutex::new((None, Instant::now())), oldest })
    }

    /// Replaces the metrics.
    pub fn set(&self, metrics: Arc<HostMetrics>) {
        let new = (Some(metrics), Instant::now());
        let old = std::mem::replace(&mut *self.last.lock().unwrap_or_else(PoisonError::into_inner), new);
        drop(old);
    }

    /// The last metrics.
    pub fn last(&self) -> LastMetrics {
        let (metrics, at) = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        LastMetrics { metrics, age: at.elapsed(), oldest: self.oldest }
    }
}
