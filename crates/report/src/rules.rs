//! The list of rules: `kvmtop check --list-rules`.

use super::document::SCHEMA;
use super::json::TOOL;
use judge::lint::{self, Rule, RuleId, Threshold, Thresholds};
use serde::Serialize;
use std::fmt::Write as _;

/// Every rule's name and what it sees, by family.
pub fn text() -> String {
    let width = lint::rules().map(|r| r.id.as_str().len()).max().unwrap_or(0);
    let mut out = String::new();
    for family in lint::FAMILIES {
        let _ = writeln!(out, "{}{}", if out.is_empty() { "" } else { "\n" }, family.name);
        for rule in family.rules {
            let _ = writeln!(out, "  {:width$}  {}", rule.id.as_str(), rule.sees);
        }
    }
    out
}

/// What `check --list-rules --json` prints.
#[derive(Debug, Serialize)]
pub struct JsonRules {
    /// Number of the schema: 1.
    schema: u32,
    /// Program and version.
    tool: &'static str,
    /// All rules.
    rules: Vec<JsonRule>,
}

/// One rule.
#[derive(Debug, Serialize)]
struct JsonRule {
    name: RuleId,
    family: &'static str,
    sees: &'static str,
    /// When a pattern is reported on a running host.
    reported: String,
    thresholds: Vec<Threshold>,
    cannot_tell: &'static str,
    fix: &'static str,
    see: &'static [&'static str],
}

impl JsonRules {
    /// The list with the thresholds in force.
    pub fn new(thresholds: &Thresholds) -> Self {
        let all = thresholds.list();
        let of = |family: &'static str, rule: &'static Rule| JsonRule {
            name: rule.id,
            family,
            sees: rule.sees,
            reported: rule.reported(),
            thresholds: rule.thresholds.iter().filter_map(|n| all.iter().find(|t| t.name == *n)).cloned().collect(),
            cannot_tell: rule.limits,
            fix: rule.fix,
            see: rule.links,
        };
        let rules = lint::FAMILIES.iter().flat_map(|f| f.rules.iter().map(move |r| (f.name, r)));
        Self { schema: SCHEMA, tool: TOOL, rules: rules.map(|(family, rule)| of(family, rule)).collect() }
    }
}
