//! Texts of other tools with figures that no host has, all the way through: file, report,
//! comparison, JSON.
//!
//! Overflow is checked as in every test.

use crate::fuzz::{NUMBERS, with_numbers};
use crate::inputs;
use import::ImportOptions;
use judge::analysis::{DomainFilter, JudgedInterval, Pipeline};
use judge::lint::{InputKind, Options};
use judge::model::Base;
use report::table::COLUMNS;
use report::{View, diff, diff_text, json, text};
use std::path::Path;
use testkit::random::Random;

fn judged(folder: &Path, duration_s: Option<f64>) -> JudgedInterval {
    let options = ImportOptions {
        duration_s,
        ..ImportOptions::default()
    };
    let imported = import::load(&[folder.to_owned()], &options);
    let options = Options {
        input: InputKind::File,
        ..Options::default()
    };
    Pipeline::new(options).judge(&imported.sample, Base::Whole(imported.interval_s))
}

fn view<'a>(judged: &'a JudgedInterval, domains: &'a DomainFilter) -> View<'a> {
    View {
        model: &judged.model,
        findings: &judged.report,
        source: "text",
        filter: domains,
    }
}

fn forge(runs: usize) {
    for (kind, input) in inputs::ALL.iter().enumerate() {
        let mut random = Random::new(kind as u64 + 1);
        let files = (input.files)(3);
        let all = DomainFilter::default();
        let mut before: Option<JudgedInterval> = None;
        for run in 0..runs {
            let folder = tempfile::tempdir().unwrap();
            // First every number, then fewer and fewer.
            let share = [1, 2, 4, 16][run % 4];
            for (name, text) in &files {
                let number = |_| {
                    let one = (random.next() % NUMBERS.len() as u64) as usize;
                    random.next().is_multiple_of(share).then_some(NUMBERS[one])
                };
                std::fs::write(
                    folder.path().join(name),
                    with_numbers(text.as_bytes(), number),
                )
                .unwrap();
            }
            let after = judged(folder.path(), Some(10.0).filter(|_| run % 3 > 0));
            let _ = text::report(&view(&after, &all), COLUMNS);
            json::line(&view(&after, &all)).unwrap();
            if let Some(before) = &before {
                let diff = diff::compare(&view(before, &all), &view(&after, &all));
                serde_json::to_string(&diff).unwrap();
                let _ = diff_text::text(&diff, COLUMNS);
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
