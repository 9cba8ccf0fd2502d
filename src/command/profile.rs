//! `kvmtop profile`: what the host threads of a guest do.

use super::{print, say_kept};
use crate::cli::args::ProfileArgs;
use ::live::{Collector, CollectorOptions};
use ::report::json;
use ::report::profile::{self as report, ProfileView};
use anyhow::{Context, ensure};
use engine::profile;
use judge::analysis::Pattern;
use rights::LaterCalls;
use sample::{DomainSample, ProfiledThread};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs it on the live host. Ctrl-C ends the sampling early and prints the samples so far; a second
/// one ends kvmtop.
pub fn run(args: &ProfileArgs) -> anyhow::Result<u8> {
    say_kept(rights::give_up_root(rights::for_profile()));
    rights::forbid_system_calls(LaterCalls::default());
    let guests = Collector::new(CollectorOptions::default()).tick().domains;
    let (guest, threads) = selected(&guests, &args.target)?;
    let pid = guest
        .facts
        .pid
        .context("this guest's process is not known")?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let profile = profile::sample(pid, &threads, args.duration, || {
        stop.load(Ordering::Relaxed)
    })
    .map_err(|why| anyhow::anyhow!("{}: {}; {}", guest.facts.name.value, why.cause, why.fix))?;
    let view = ProfileView {
        guest: &guest.facts.name.value,
        pid: Some(pid),
        profile: &profile,
    };
    print(&match (args.json, args.folded) {
        (true, _) => json::text(&json::profile(view))? + "\n",
        (_, true) => report::folded(view),
        _ => report::text(view),
    })?;
    Ok(0)
}

/// The guest that the user named, and its threads or the one that the user named.
fn selected<'a>(
    guests: &'a [DomainSample],
    target: &Pattern,
) -> anyhow::Result<(&'a DomainSample, Vec<ProfiledThread>)> {
    let matching: Vec<_> = guests
        .iter()
        .filter(|guest| target.matches(&guest.facts))
        .collect();
    let tid: Option<i32> = target.as_str().parse().ok();
    let mut with_thread = guests
        .iter()
        .filter(|guest| guest.threads.iter().any(|thread| Some(thread.tid) == tid));
    let (guest, tid) = match matching[..] {
        [guest] => (guest, None),
        [] => {
            let guest = with_thread.next().with_context(|| {
                format!(
                    "no guest and no thread of one is {}; running: {}",
                    target.as_str(),
                    names(guests)
                )
            })?;
            (guest, tid)
        }
        _ => anyhow::bail!(
            "several guests match {}: {}",
            target.as_str(),
            names(matching)
        ),
    };
    let threads = guest
        .threads
        .iter()
        .filter(|thread| tid.is_none_or(|tid| thread.tid == tid));
    let threads: Vec<_> = threads
        .map(|t| ProfiledThread {
            tid: t.tid,
            comm: t.comm.clone(),
            role: t.role,
            index: t.index,
            cpu_ns: None,
        })
        .collect();
    ensure!(
        !threads.is_empty(),
        "no thread of {} is visible",
        guest.facts.name.value
    );
    Ok((guest, threads))
}

fn names<'a>(guests: impl IntoIterator<Item = &'a DomainSample>) -> String {
    guests
        .into_iter()
        .map(|guest| guest.facts.name.value.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}
