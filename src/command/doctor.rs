//! `kvmtop doctor`: what this host hides from kvmtop, and how to enable it.

use super::{live, print};
use crate::cli::Settings;
use crate::cli::args::DoctorArgs;
use ::live::{HeldRights, Prerequisite, SystemPaths, prerequisites};
use ::report::table::cut;
use ::report::{document, json};
use judge::figures::count;
use rustix::thread::CapabilitySet;
use sample::Feed;
use sample::{Sample, SourceState};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Duration;

/// Time for libvirt and the monitors to answer.
const PATIENCE: Duration = Duration::from_millis(1500);

#[derive(Serialize)]
struct DoctorJson {
    schema: u32,
    tool: &'static str,
    engine: &'static str,
    guests: usize,
    sources: Vec<document::JsonSource>,
    host: Vec<JsonPrerequisite>,
}

#[derive(Serialize)]
struct JsonPrerequisite {
    name: &'static str,
    value: String,
    fix: Option<String>,
}

/// Runs it on the live host.
pub fn run(args: &DoctorArgs, settings: &Settings) -> anyhow::Result<u8> {
    let settings = Settings { interval: PATIENCE, ..settings.clone() };
    let rights = HeldRights::here();
    let mut live = live::start_with(&settings, CapabilitySet::empty(), true);
    live::stop_on_signals(live.commands)?;
    let first = live.feed.next()?;
    let Some(sample) = live.feed.next()?.or(first) else { return Ok(0) };
    let host = prerequisites(&SystemPaths::default(), &rights, sample.engine.kind, &sample.host.facts);
    if args.json {
        let document = DoctorJson {
            schema: document::SCHEMA,
            tool: json::TOOL,
            engine: sample.engine.kind.as_str(),
            guests: sample.domains.len(),
            sources: sample.sources.iter().cloned().map(json::source).collect(),
            host: host
                .into_iter()
                .map(|Prerequisite { name, value, fix }| JsonPrerequisite { name, value, fix })
                .collect(),
        };
        print(&(json::text(&document)? + "\n"))?;
    } else {
        print(&text(&sample, &host))?;
    }
    Ok(0)
}

/// The sources, then what decides about them. A cure that a source names already is not repeated.
fn text(sample: &Sample, host: &[Prerequisite]) -> String {
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
    let width = host.iter().map(|p| p.name.len()).max().unwrap_or(0);
    out.push('\n');
    for Prerequisite { name, value, fix } in host {
        let _ = writeln!(out, "{name:<width$}  {}", cut(value, 400));
        let is_new = |fix: &&String| !sample.sources.iter().filter_map(|s| s.fix.as_ref()).any(|f| f.contains(*fix));
        if let Some(fix) = fix.as_ref().filter(is_new) {
            let _ = writeln!(out, "{:width$}  {}", "", cut(fix, 400));
        }
    }
    out
}
