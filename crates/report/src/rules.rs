//! The list of rules: `kvmtop check --list-rules`.

use judge::lint;
use std::fmt::Write as _;

/// Every rule's name and what it sees, by family.
pub fn text() -> String {
    let width = lint::rules()
        .map(|r| r.id.as_str().len())
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    for family in lint::FAMILIES {
        let _ = writeln!(
            out,
            "{}{}",
            if out.is_empty() { "" } else { "\n" },
            family.name
        );
        for rule in family.rules {
            let _ = writeln!(out, "  {:width$}  {}", rule.id.as_str(), rule.doc.sees);
        }
    }
    out
}
