//! `kvmtop plan`: one placement of all guests, of this host or from files. It applies nothing.

use super::report::JudgedInput;
use super::{columns, live, print, report, say, say_unmatched};
use crate::cli::Settings;
use crate::cli::args::PlanArgs;
use ::report::plan::{self, JsonPlan};
use judge::analysis::Pipeline;
use judge::lint;

/// Runs it.
pub fn run(args: &PlanArgs, settings: &Settings) -> anyhow::Result<u8> {
    let read = if args.inputs.is_empty() {
        let reading = &args.reading;
        anyhow::ensure!(
            !reading.has_time() && reading.duration.is_none() && reading.vcpus.is_none(),
            "--at, --from, --to, --duration and --vcpus need a file to read"
        );
        let [before, after] = live::two_samples(settings);
        let mut pipeline = Pipeline::new(settings.findings.clone());
        pipeline.next(before.into());
        JudgedInput {
            interval: pipeline.next_or_first(after.into()),
            source: "live",
            damaged: false,
        }
    } else {
        let read = report::read(&args.inputs, &args.reading, settings, None)?;
        read.interval.report.notes.iter().for_each(|note| say(note));
        read
    };
    let input = if read.source == "live" {
        lint::InputKind::Live
    } else {
        lint::InputKind::File
    };
    let options = lint::Options {
        input,
        ..settings.findings.clone()
    };
    let host = lint::plan(&read.interval.model, &options);
    say_unmatched(&read.view(settings));
    if args.reading.json {
        print(
            &(serde_json::to_string(&JsonPlan::new(&host, read.source, &settings.domains))? + "\n"),
        )?;
    } else {
        print(&plan::text(&host, &settings.domains, columns()))?;
    }
    Ok(report::status(read.damaged))
}
