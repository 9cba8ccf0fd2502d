//! Everything that kvmtop prints without its screen: tables, JSON and comparisons. Pure: a model
//! and its findings in, text out.
//!
//! `document` has the shape of the JSON, `json` writes it; `text`, `findings_text` and
//! `counter_tables` print the same for people, with the columns of `table`.

mod counter_tables;
pub mod diff;
pub mod diff_text;
pub mod document;
pub mod findings_text;
pub mod html;
pub mod json;
pub mod plan;
pub mod profile;
pub mod rules;
pub mod table;
pub mod text;

use judge::analysis::DomainFilter;
use judge::lint;
use judge::model::{DomainModel, Model};
use sample::SourceStatus;

/// One interval with its findings, and the guests that `--domain` selects.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The interval.
    pub model: &'a Model,
    /// What the rules found in it.
    pub findings: &'a lint::Report,
    /// Kind of input: `live`, `session`, `perf.data` or `text`.
    pub source: &'a str,
    /// What selects the guests.
    pub filter: &'a DomainFilter,
}

impl<'a> View<'a> {
    /// The selected guests, in the model's order.
    pub fn guests(&self) -> impl Iterator<Item = &'a DomainModel> + use<'a> {
        self.filter.guests(self.model)
    }

    /// The findings about the host and the selected guests, worst first.
    pub fn selected_findings(&self) -> impl Iterator<Item = &'a lint::Finding> + use<'a> {
        let findings = self.findings.findings.iter();
        findings.filter(|finding| self.filter.has_finding(self.model, finding))
    }

    /// What could not be judged, of the host and the selected guests.
    pub fn selected_cannot_tell(&self) -> impl Iterator<Item = &'a lint::CannotTell> + use<'a> {
        let unjudged = self.findings.cannot_tell.iter();
        unjudged.filter(|about| self.filter.is_about(self.model, about.domain.as_ref()))
    }

    /// What has not been watched for long enough to be judged, of the host and the selected guests.
    pub fn selected_watching(&self) -> impl Iterator<Item = &'a lint::StillWatched> + use<'a> {
        let watching = self.findings.watching.iter();
        watching.filter(|about| self.filter.is_about(self.model, about.domain.as_ref()))
    }

    /// The sources, and an entry for each pattern that matches no guest.
    pub fn sources(&self) -> Vec<SourceStatus> {
        self.filter.sources(self.model)
    }
}

#[cfg(test)]
mod tests;
