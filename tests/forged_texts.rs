//! Texts of other tools with figures that no host has, all the way through: file, report, comparison, JSON.
//!
//! Overflow is checked as in every test.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

#[path = "synthetic/inputs.rs"]
mod inputs;

use kvmtop::analysis::{DomainFilter, JudgedInterval, Pipeline};
use kvmtop::lint::{InputKind, Options};
use kvmtop::report::{View, diff, diff_text, json, text};
use kvmtop::source::import::{self, ImportOptions};
use std::path::Path;

const EXTREMES: &[&str] = &[
    "0",
    "1",
    "4294967295",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999",
    "ffffffffffffffff",
    "-1",
    "1e308",
    "0.0000001",
    "184467440737095516.15",
];

/// Numbers of a fixed series (Knuth's MMIX generator).
struct Series(u64);

impl Series {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Where the numbers of a text are.
fn numbers(text: &str) -> Vec<(usize, usize)> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    for (at, _) in text.bytes().enumerate().filter(|(_, b)| b.is_ascii_digit()) {
        match found.last_mut() {
            Some((_, end)) if *end == at => *end = at + 1,
            _ => found.push((at, at + 1)),
        }
    }
    found
}

/// The text with one in `share` of its numbers replaced.
fn forged(text: &str, share: usize, series: &mut Series) -> String {
    let (mut out, mut from) = (String::new(), 0);
    for (start, end) in numbers(text) {
        out.push_str(&text[from..start]);
        from = end;
        out.push_str(if series.below(share) == 0 { EXTREMES[series.below(EXTREMES.len())] } else { &text[start..end] });
    }
    out + &text[from..]
}

fn judged(folder: &Path, duration_s: Option<f64>) -> JudgedInterval {
    let options = ImportOptions { duration_s, ..ImportOptions::default() };
    let imported = import::load(&[folder.to_owned()], &options);
    let options = Options { input: InputKind::File, ..Options::default() };
    Pipeline::new(options).whole(&imported.sample, imported.base)
}

fn view<'a>(judged: &'a JudgedInterval, domains: &'a DomainFilter) -> View<'a> {
    View { model: &judged.model, findings: &judged.report, source: "text", domains }
}

fn forge(runs: usize) {
    for (kind, input) in inputs::ALL.iter().enumerate() {
        let mut series = Series(kind as u64);
        let files = (input.files)(3);
        let all = DomainFilter::default();
        let mut before: Option<JudgedInterval> = None;
        for run in 0..runs {
            let folder = tempfile::tempdir().unwrap();
            // First every number, then fewer and fewer.
            let share = [1, 2, 4, 16][run % 4];
            for (name, text) in &files {
                std::fs::write(folder.path().join(name), forged(text, share, &mut series)).unwrap();
            }
            let after = judged(folder.path(), Some(10.0).filter(|_| run % 3 > 0));
            let _ = text::report(&view(&after, &all));
            json::line(&view(&after, &all)).unwrap();
            if let Some(before) = &before {
                let diff = diff::compare(&view(before, &all), &view(&after, &all));
                serde_json::to_string(&diff).unwrap();
                let _ = diff_text::text(&diff);
            }
            before = Some(after);
        }
    }
}

#[test]
fn figures_that_no_host_has_are_read_and_judged() {
    forge(24);
}

#[test]
#[ignore = "takes minutes; the same with far more texts"]
fn many_forged_texts() {
    forge(3000);
}
