//! `kvmtop doctor`: what this host hides from kvmtop, and how to enable it.

use super::{live, print};
use crate::cli::Settings;
use crate::cli::args::DoctorArgs;
use crate::report::table::cut;
use crate::report::text::count;
use crate::report::{document, json};
use crate::sample::{Sample, SourceState};
use crate::source::Feed;
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Duration;

/// How long libvirt and the monitor may take to answer; each has a thread of its own.
const PATIENCE: Duration = Duration::from_millis(1500);

#[derive(Serialize)]
struct DoctorJson {
    schema: u32,
    tool: &'static str,
    engine: &'static str,
    guests: usize,
    sources: Vec<document::JsonSource>,
}

/// Runs it on the live host.
pub fn run(args: &DoctorArgs, settings: &Settings) -> anyhow::Result<u8> {
    let settings = Settings { interval: PATIENCE, ..settings.clone() };
    let mut live = live::start_with(&settings, true);
    live::stop_on_signals(live.commands)?;
    let first = live.feed.next()?;
    let Some(sample) = live.feed.next()?.or(first) else { return Ok(0) };
    if args.json {
        let document = DoctorJson {
            schema: document::SCHEMA,
            tool: json::TOOL,
            engine: sample.engine.kind.as_str(),
            guests: sample.domains.len(),
            sources: sample.sources.iter().cloned().map(json::source).collect(),
        };
        print(&(json::text(&document)? + "\n"))?;
    } else {
        print(&text(&sample))?;
    }
    Ok(0)
}

fn text(sample: &Sample) -> String {
    let facts = &sample.host.facts;
    let flavour = facts.kvm_flavour.as_deref().unwrap_or("no kvm module");
    let mut out = format!(
        "{}  Linux {} {}  engine {}  {}\n",
        cut(&facts.hostname, 32),
        cut(&facts.kernel, 32),
        cut(flavour, 16),
        sample.engine.kind.as_str(),
        count(sample.domains.len(), "guest")
    );
    for s in &sample.sources {
        let _ = writeln!(out, "{:<9} {}", s.state.as_str(), s.id.as_str());
        if s.state != SourceState::Ok {
            for text in s.cause.iter().chain(&s.fix) {
                let _ = writeln!(out, "          {}", cut(text, 400));
            }
        }
    }
    out
}
