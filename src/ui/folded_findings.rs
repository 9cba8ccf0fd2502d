//! Findings of several guests that say the same share a line of the first screen.

use judge::lint::Finding;
use std::collections::HashMap;

/// A finding, and the same one about other guests.
#[derive(Debug, PartialEq)]
pub struct FoldedFinding<'a> {
    /// The most costly finding: the line shows its figure.
    pub worst: &'a Finding,
    /// The other guests, in the order of the findings.
    pub others: Vec<&'a str>,
}

/// Folds the findings into lines: one line for each rule, severity and title, at the place of the first such finding.
pub fn fold(findings: &[Finding]) -> Vec<FoldedFinding<'_>> {
    let mut lines: Vec<Vec<&Finding>> = Vec::new();
    // A guest with two such findings appears in two lines: its first finding in the first, its second in the second.
    let mut nth: HashMap<_, usize> = HashMap::new();
    let mut line_of: HashMap<_, usize> = HashMap::new();
    for f in findings {
        let Some(domain) = &f.domain else {
            lines.push(vec![f]);
            continue;
        };
        let says = (f.rule, f.severity, f.title.as_str());
        let nth = nth.entry((says, domain)).or_default();
        let line = *line_of.entry((says, *nth)).or_insert(lines.len());
        *nth += 1;
        match lines.get_mut(line) {
            Some(line) => line.push(f),
            None => lines.push(vec![f]),
        }
    }
    lines.into_iter().filter_map(|line| one(&line)).collect()
}

fn one<'a>(line: &[&'a Finding]) -> Option<FoldedFinding<'a>> {
    let cost = |f: &Finding| f.cost.unwrap_or(0.0);
    // The first of those that cost the same.
    let worst = *line.iter().rev().max_by(|a, b| cost(a).total_cmp(&cost(b)))?;
    let others = line.iter().filter(|f| !std::ptr::eq(**f, worst));
    Some(FoldedFinding { worst, others: others.filter_map(|f| f.domain.as_deref()).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use judge::lint::{RuleId, Severity};

    fn finding(rule: RuleId, domain: &str, severity: Severity, cost: f64) -> Finding {
        let domain = Some(domain.to_owned()).filter(|d| d != "host");
        Finding { rule, domain, severity, cost: Some(cost), title: rule.to_string(), ..Finding::default() }
    }

    #[test]
    fn the_same_of_several_guests_is_a_line_that_begins_with_the_worst() {
        use Severity::{Critical, Warning};
        let mut all = vec![
            finding(RuleId::AcpiPmTimer, "a", Critical, 1.0),
            finding(RuleId::VcpuWait, "a", Critical, 5.0),
            finding(RuleId::AcpiPmTimer, "b", Critical, 9.0),
            finding(RuleId::AcpiPmTimer, "c", Critical, 9.0),
            finding(RuleId::AcpiPmTimer, "b", Critical, 2.0),
            finding(RuleId::AcpiPmTimer, "d", Warning, 3.0),
            finding(RuleId::HostSteal, "host", Warning, 0.0),
            finding(RuleId::HostSteal, "host", Warning, 0.0),
        ];
        let lines = |all: &[Finding]| -> Vec<String> {
            let who = |f: &FoldedFinding<'_>| {
                format!("{} {} {}", f.worst.rule, f.worst.domain.as_deref().unwrap_or("host"), f.others.join(","))
            };
            fold(all).iter().map(who).collect()
        };
        let folded = [
            "acpi-pm-timer b a,c",
            "vcpu-wait a ",
            "acpi-pm-timer b ",
            "acpi-pm-timer d ",
            "host-steal host ",
            "host-steal host ",
        ];
        assert_eq!(lines(&all), folded, "two about one guest stay two");
        all[2].title = "another cause".into();
        assert_eq!(lines(&all)[..3], ["acpi-pm-timer c a,b", "vcpu-wait a ", "acpi-pm-timer b "]);
    }
}
