//! Which sources work, which are missing and the command that enables them; and what could not be
//! judged.

use super::section::{Section, TextLine};
use crate::ui::{AppState, SectionId, StyleId, StyledLine, clean_line, clean_lines, width, wrap};
use judge::figures::{bytes, percent};
use judge::model::Model;
use report::findings_text::{self, Unjudged};
use sample::{SourceId, SourceState, SourceStatus};

/// Width of what is on the left of a text.
const LABEL_WIDTH: u16 = 26;
/// Room for a text beside its label; with less it is below.
const MIN_BESIDE: u16 = 38;
const INDENT: u16 = 2;
/// How many guests or rules are named in a row.
const MAX_NAMES: usize = 3;

/// What a source that works gives.
fn gives(id: SourceId) -> &'static str {
    match id {
        SourceId::Procfs => "guests and their threads, CPU time, wait, memory, tap devices",
        SourceId::Tracepoints => "exits, accesses, wake-ups, moves",
        SourceId::HostDevices => "disks and network links of the host",
        SourceId::KvmStats => "KVM's own counters",
        SourceId::KernelLog => "what the kernel logs about KVM",
        SourceId::Libvirt => "names and configuration of guests, pins, disks, interfaces",
        SourceId::Monitor => "devices by address, disks, balloon",
        SourceId::Recording => "what is seen is being recorded",
        SourceId::Session => "samples of a recording",
        _ => "",
    }
}

/// A text wrapped beside its label, or below it on a narrow screen.
fn entry(label: (String, StyleId), texts: StyledLine, columns: u16) -> Vec<TextLine> {
    // Beside the scroll bar and a blank.
    let columns = columns.saturating_sub(3);
    let is_below = columns < LABEL_WIDTH + MIN_BESIDE || width(&label.0) >= LABEL_WIDTH;
    let indent = if is_below { INDENT } else { LABEL_WIDTH };
    let mut lines: Vec<StyledLine> = Vec::new();
    for (text, look) in texts {
        for line in wrap(&text, columns.saturating_sub(indent)) {
            let blank = " ".repeat(indent.into());
            lines.push(vec![(blank, StyleId::Text), (line, look)]);
        }
    }
    match lines.first_mut() {
        Some(first) if !is_below => {
            let (text, look) = label;
            let width = usize::from(LABEL_WIDTH);
            first[0] = (format!("{text:<width$}"), look);
        }
        _ => lines.insert(0, vec![label]),
    }
    lines.into_iter().map(TextLine::from).collect()
}

/// The sources, those that are missing first.
pub fn section(model: &Model, columns: u16) -> Section<'_> {
    let mut sources: Vec<_> = model.sources.iter().collect();
    sources.sort_by_key(|s| match s.state {
        SourceState::Missing => 0,
        SourceState::Degraded => 1,
        SourceState::Ok => 2,
    });
    let mut lines = Vec::new();
    for s in &sources {
        lines.extend(source_lines(s, columns));
    }
    if model.overflow > 0 {
        let text = format!(
            "{} events are counted in rows named other: too many addresses",
            model.overflow
        );
        let label = ("overflow".into(), StyleId::Warning);
        lines.extend(entry(label, vec![(text, StyleId::Text)], columns));
    }
    let mut section = Section::text(SectionId::Sources, "sources", lines);
    let troubled = model.troubled_sources().len();
    if troubled > 0 {
        section.note = format!("{troubled} of {} do not give all", sources.len());
    }
    if model.own_rss > 0 {
        let memory = bytes(model.own_rss);
        section.right = match model.own_cpu {
            Some(cpu) => format!("kvmtop: {} % of a CPU, {memory}", percent(cpu)),
            None => format!("kvmtop: {memory}"),
        };
    }
    section
}

/// A source: its state, then why and what to do, or what it gives.
fn source_lines(source: &SourceStatus, columns: u16) -> Vec<TextLine> {
    let mut texts = Vec::new();
    if let Some(cause) = &source.cause {
        texts.push((clean_lines(cause), StyleId::Text));
    }
    if let Some(fix) = &source.fix {
        texts.push((format!("fix: {}", clean_lines(fix)), StyleId::Strong));
    }
    if texts.is_empty() {
        texts.push((gives(source.id).into(), StyleId::Dim));
    }
    let look = if source.state == SourceState::Ok {
        StyleId::Good
    } else {
        StyleId::Warning
    };
    let label = format!("{:<15} {}", source.id.as_str(), source.state.as_str());
    entry((label, look), texts, columns)
}

/// What could not be judged, and where not enough has been seen: no finding does not mean that all
/// is well.
pub fn unjudged<'a>(state: &'a AppState, model: &'a Model, columns: u16) -> Section<'a> {
    let cannot_tell: Vec<_> = state.report.cannot_tell.iter().collect();
    let watching: Vec<_> = state.report.watching.iter().collect();
    let unjudged = findings_text::unjudged(&cannot_tell, &watching, MAX_NAMES);
    let mut lines = Vec::new();
    for Unjudged { label, text } in &unjudged {
        let label = ((*label).to_owned(), StyleId::Strong);
        let text = (clean_line(text), StyleId::Text);
        lines.extend(entry(label, vec![text], columns));
    }
    let note = if !unjudged.is_empty() {
        ""
    } else if model.interval_s.is_none() {
        "the first interval is measured"
    } else {
        "nothing"
    };
    Section::text(SectionId::Unjudged, "what could not be judged", lines).with_note(note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::state::Tick;
    use crate::ui::tests::{model, screen};
    use crate::ui::views::section::Body;
    use judge::lint::{CannotTell, Report, RuleId};
    use testkit::Fixture;

    fn lines(section: Section<'_>) -> Vec<String> {
        let Body::Text(lines) = section.body else {
            panic!("no text")
        };
        lines
            .into_iter()
            .map(|line| line.pieces.into_iter().map(|(text, _)| text).collect())
            .collect()
    }

    #[test]
    fn what_is_missing_is_first_with_cause_and_command() {
        let state = screen(&Fixture::no_kvm_exit(), 120, 40);
        let text = lines(section(model(&state), 120));
        assert!(
            text[0].starts_with("libvirt         missing   cannot connect"),
            "{text:#?}"
        );
        assert!(
            text.iter()
                .any(|line| line.trim() == "fix: systemctl start libvirtd"),
            "{text:#?}"
        );
        assert!(text.last().unwrap().contains(" ok "), "{text:#?}");
        for columns in [40, 64, 80, 200] {
            for line in lines(section(model(&state), columns)) {
                assert!(width(&line) <= columns - 3, "{columns}: {line}");
            }
        }
    }

    #[test]
    fn a_reason_of_many_guests_is_said_once() {
        let f = Fixture::busy_host();
        let mut state = screen(&f, 120, 40);
        let cannot = |domain: String| CannotTell {
            rule: RuleId::DiskLatency,
            domain: Some(domain),
            because: "the host's block devices are not timed".into(),
        };
        state.absorb(Tick {
            model: model(&state).clone(),
            report: Report {
                cannot_tell: (0..12).map(|i| cannot(format!("g{i:02}"))).collect(),
                ..Report::default()
            },
            ..Tick::default()
        });
        let text = lines(unjudged(&state, model(&state), 120));
        assert_eq!(text.len(), 1, "{text:#?}");
        assert!(
            text[0].starts_with(
                "not judged                disk-latency of g00, g01, g02, and 9 more: "
            ),
            "{text:#?}"
        );
        state.report.cannot_tell.clear();
        assert_eq!(unjudged(&state, model(&state), 120).note, "nothing");
    }
    #[test]
    fn a_label_and_its_text_stay_apart_whatever_a_guest_is_called() {
        let mut state = screen(&Fixture::busy_host(), 120, 40);
        state.report.cannot_tell = vec![CannotTell {
            rule: RuleId::DiskLatency,
            domain: Some("db: main".into()),
            because: "its disks are not timed".into(),
        }];
        let text = lines(unjudged(&state, model(&state), 120));
        assert_eq!(
            text,
            ["not judged                disk-latency of db: main: its disks are not timed"]
        );
    }
}
