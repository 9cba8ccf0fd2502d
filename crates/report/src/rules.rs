//! The list of rules: `kvmtop check --list-rules`.

use super::document::SCHEMA;
use super::json::TOOL;
use crate::objects;
use judge::lint::{self, Rule, RuleId, Threshold, Thresholds};
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

objects! {
    /// All rules (`check --list-rules --json`).
    #[schemars(rename = "rules")]
    pub struct JsonRules(thresholds: &Thresholds) {
        /// Version of this format.
        #[schemars(extend("const" = 1))]
        schema: u32 = SCHEMA,
        /// `kvmtop` and its version.
        tool: &'static str = TOOL,
        /// The rules, by family.
        rules: Vec<JsonRule> = rules(&thresholds.list()),
    }

    /// One rule. docs/rules.md has the same as a page.
    pub struct JsonRule(part: &'static str, rule: &'static Rule, all: &[Threshold]) {
        /// The name in findings, in the config file and after `--warn` and `--allow`.
        name: RuleId = rule.id,
        /// The part of the machine that it is about.
        family: &'static str = part,
        /// What it sees.
        sees: &'static str = rule.doc.sees,
        /// When its pattern is reported on a running host, such as `after 3 of the last 5 s`.
        reported: String = rule.reported(),
        /// The thresholds that decide.
        thresholds: Vec<Threshold> =
            rule.doc.thresholds.iter().filter_map(|n| all.iter().find(|t| t.name == *n)).cloned().collect(),
        /// What it cannot tell, or confuses with something else.
        cannot_tell: &'static str = rule.doc.limits,
        /// What its fix changes, and what that needs.
        fix: &'static str = rule.doc.fix,
        /// Public documents about the cause.
        see: &'static [&'static str] = rule.doc.links,
    }
}

fn rules(all: &[Threshold]) -> Vec<JsonRule> {
    let rules = lint::FAMILIES.iter().flat_map(|f| f.rules.iter().map(move |r| (f.name, r)));
    rules.map(|(family, rule)| JsonRule::new(family, rule, all)).collect()
}
