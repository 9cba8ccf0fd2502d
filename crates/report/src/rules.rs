//! The list of rules: `kvmtop check --list-rules`.

use super::document::SCHEMA;
use super::json::TOOL;
use judge::lint::{self, Rule, RuleId, Threshold, Thresholds};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Write as _;

/// Every rule's name and what it sees, by family.
pub fn text() -> String {
    let width = lint::rules().map(|r| r.id.as_str().len()).max().unwrap_or(0);
    let mut out = String::new();
    for family in lint::FAMILIES {
        let _ = writeln!(out, "{}{}", if out.is_empty() { "" } else { "\n" }, family.name);
        for rule in family.rules {
            let _ = writeln!(out, "  {:width$}  {}", rule.id.as_str(), rule.doc.sees);
        }
    }
    out
}

/// All rules (`check --list-rules --json`).
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "rules")]
pub struct JsonRules {
    /// Version of this format.
    #[schemars(extend("const" = 1))]
    schema: u32,
    /// `kvmtop` and its version.
    tool: &'static str,
    /// The rules, by family.
    rules: Vec<JsonRule>,
}

/// One rule. docs/rules.md has the same as a page.
#[derive(Debug, Serialize, JsonSchema)]
struct JsonRule {
    /// The name in findings, in the config file and after `--warn` and `--allow`.
    name: RuleId,
    /// The part of the machine that it is about.
    family: &'static str,
    /// What it sees.
    sees: &'static str,
    /// When its pattern is reported on a running host, such as `after 3 of the last 5 s`.
    reported: String,
    /// The thresholds that decide.
    thresholds: Vec<Threshold>,
    /// What it cannot tell, or confuses with something else.
    cannot_tell: &'static str,
    /// What its fix changes, and what that needs.
    fix: &'static str,
    /// Public documents about the cause.
    see: &'static [&'static str],
}

impl JsonRules {
    /// The list with the current thresholds.
    pub fn new(thresholds: &Thresholds) -> Self {
        let all = thresholds.list();
        let of = |family: &'static str, rule: &'static Rule| JsonRule {
            name: rule.id,
            family,
            sees: rule.doc.sees,
            reported: rule.reported(),
            thresholds: rule.doc.thresholds.iter().filter_map(|n| all.iter().find(|t| t.name == *n)).cloned().collect(),
            cannot_tell: rule.doc.limits,
            fix: rule.doc.fix,
            see: rule.doc.links,
        };
        let rules = lint::FAMILIES.iter().flat_map(|f| f.rules.iter().map(move |r| (f.name, r)));
        Self { schema: SCHEMA, tool: TOOL, rules: rules.map(|(family, rule)| of(family, rule)).collect() }
    }
}
