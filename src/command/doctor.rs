//! `kvmtop doctor`: what this host hides from kvmtop, and how to enable it.

use super::{live, print};
use crate::cli::Settings;
use crate::cli::args::DoctorArgs;
use ::live::{Prerequisite, SystemPaths, prerequisites};
use ::report::document::{JsonSource, SCHEMA};
use ::report::json::{self, TOOL};
use ::report::objects;
use ::report::table::cut;
use judge::figures::count;
use rustix::thread::{CapabilitySet, capabilities};
use sample::{Feed, Sample};
use std::fmt::Write as _;
use std::time::Duration;

/// Time for libvirt and the monitors to answer.
const PATIENCE: Duration = Duration::from_millis(1500);

objects! {
    /// What this host lets kvmtop see (`doctor --json`).
    #[schemars(rename = "doctor")]
    pub struct DoctorJson(sample: &Sample, prerequisites: Vec<Prerequisite>) {
        /// Version of this format.
        #[schemars(extend("const" = 1))]
        schema: u32 = SCHEMA,
        /// `kvmtop` and its version.
        tool: &'static str = TOOL,
        /// The engine that `--engine` and this host allow, as in a report.
        #[schemars(extend("enum" = ["bpf", "perf", "none", "file"]))]
        engine: &'static str = sample.engine.kind.as_str(),
        /// Guests found.
        guests: usize = sample.domains.len(),
        /// Each source of data and its state.
        sources: Vec<JsonSource> = sample.sources.iter().cloned().map(JsonSource::new).collect(),
        /// Settings of the kernel and rights that decide what kvmtop may see.
        host: Vec<Prerequisite> = prerequisites,
    }
}

/// Runs it on the live host.
pub fn run(args: &DoctorArgs, settings: &Settings) -> anyhow::Result<u8> {
    let settings = Settings {
        interval: PATIENCE,
        ..settings.clone()
    };
    // Asked before the sources start: what they no longer need is given up then.
    let held = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
    let mut live = live::start_with(&settings, None, true);
    live::stop_on_signals(live.commands, Some(super::FAILED))?;
    let first = live.feed.next()?;
    let Some(sample) = live.feed.next()?.or(first) else {
        return Ok(0);
    };
    let host = prerequisites(&SystemPaths::default(), held, &sample.host.facts);
    if args.json {
        print(&(json::text(&DoctorJson::new(&sample, host))? + "\n"))?;
    } else {
        print(&text(&sample, &host))?;
    }
    Ok(0)
}

/// The sources, then what decides about them.
fn text(sample: &Sample, host: &[Prerequisite]) -> String {
    let facts = &sample.host.facts;
    let mut out = format!(
        "{}  Linux {}  engine {}  {}\n",
        cut(&facts.hostname, 32),
        cut(&facts.kernel, 32),
        sample.engine.kind.as_str(),
        count(sample.domains.len(), "guest")
    );
    for s in &sample.sources {
        let _ = writeln!(out, "{:<9} {}", s.state.as_str(), s.id.as_str());
        for text in s.cause.iter().chain(&s.fix) {
            let _ = writeln!(out, "          {}", cut(text, 400));
        }
    }
    out.push('\n');
    for Prerequisite { name, value, fix } in host {
        let _ = writeln!(out, "{name}: {}", cut(value, 400));
        if let Some(fix) = fix {
            let _ = writeln!(out, "          {}", cut(fix, 400));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use sample::{SourceId, SourceStatus};

    #[test]
    fn each_source_has_its_cure() {
        let missing = |id| SourceStatus::missing(id, format!("no {}", id.as_str()), "setcap");
        let host = testkit::Fixture::empty_host();
        let host = host
            .source(missing(SourceId::Tracepoints))
            .source(missing(SourceId::KernelLog));
        let rights = Prerequisite {
            name: "rights",
            value: "none".into(),
            fix: Some("setcap".into()),
        };
        let said = text(&host.sample(0.0), &[rights]);
        assert_eq!(said.matches("setcap").count(), 3, "{said}");
        assert!(
            said.contains("no kernel-log") && said.contains("rights: none"),
            "{said}"
        );
    }
}
