//! `kvmtop export`: serves metrics to Prometheus.

mod request;
mod server;

use super::{live, say, say_unmatched, view};
use crate::cli::Settings;
use crate::cli::args::ExportArgs;
use anyhow::Context;
use judge::analysis::Pipeline;
use metrics::HostMetrics;
use request::{Answers, publish};
use sample::Feed;
use std::cell::RefCell;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

/// Disks and interfaces are read every five seconds, and a sample holds the last reading alone: a
/// longer interval would miss some.
const MAX_INTERVAL: Duration = Duration::from_secs(5);

/// Runs it on the live host until a signal comes.
pub fn run(args: &ExportArgs, settings: &Settings) -> anyhow::Result<u8> {
    let settings = &Settings {
        interval: settings.interval.min(MAX_INTERVAL),
        ..settings.clone()
    };
    // A port below 1024 is opened before rights are given up.
    let listener = TcpListener::bind(args.listen).with_context(|| {
        format!(
            "cannot listen on {}; --listen takes another address and port, such as 127.0.0.1:9754",
            args.listen
        )
    })?;
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() {
        say(&format!(
            "{address} can be reached from other hosts without TLS and passwords: whoever reaches \
             it reads the names of guests and what they do; listen on 127.0.0.1 and put a reverse \
             proxy before it"
        ));
    }
    let live = live::start(settings);
    live::stop_on_signals(live.commands, None)?;
    let published = Arc::default();
    let max_age = settings.interval * 3 + Duration::from_secs(5);
    let answers = Answers {
        published: Arc::clone(&published),
        max_age,
        text: RefCell::default(),
    };
    let server = server::start(listener, answers)?;
    say(&format!("serving http://{address}/metrics; Ctrl-C ends it"));
    let mut feed = live.feed;
    let mut metrics = HostMetrics::new(args.per_vcpu);
    let mut pipeline = Pipeline::new(settings.findings.clone());
    let (mut before, mut checked_patterns) = (None, false);
    while let Some(sample) = feed.next()? {
        anyhow::ensure!(
            !server.is_finished(),
            "the thread that serves {address} ended; start kvmtop again"
        );
        let sample = Arc::new(sample);
        let mut interval = pipeline.next_or_first(sample.clone());
        // libvirt may not have answered when the first sample is taken.
        if !checked_patterns && before.is_some() {
            say_unmatched(&view(&interval, "live", settings));
            checked_patterns = true;
        }
        interval.keep_only(&settings.domains);
        metrics.add(&sample, before.as_deref(), &interval);
        publish(&published, Arc::new(metrics.clone()));
        before = Some(sample);
    }
    Ok(0)
}
