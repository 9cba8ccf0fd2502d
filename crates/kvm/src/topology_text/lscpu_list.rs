//! `lscpu -p` with any columns: `# CPU,Core,Socket,Node,,L1d,L1i,L2,L3`.

use super::TopologyText;
use super::lscpu_table::CpuColumns;

/// lscpu knows some twenty columns.
const MAX_COLUMNS: usize = 64;

pub(super) fn looks_like(text: &str) -> bool {
    text.lines().take(5000).any(|line| titles(line).is_some())
}

/// The columns of a title line. lscpu writes it as a comment.
fn titles(line: &str) -> Option<CpuColumns> {
    let names: Vec<&str> = line.trim().strip_prefix('#')?.trim().split(',').take(MAX_COLUMNS).map(str::trim).collect();
    (names.len() > 1).then(|| CpuColumns::by_name(&names)).flatten()
}

pub(super) fn parse(text: &str) -> TopologyText {
    let mut found = TopologyText::default();
    let mut columns = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(titles) = titles(line) {
            columns = Some(titles);
            continue;
        }
        let Some(titles) = &columns else { continue };
        if line.starts_with('#') {
            continue;
        }
        let values: Vec<&str> = line.split(',').take(MAX_COLUMNS).map(str::trim).collect();
        if values.len() > 1 && titles.read(&values, &mut found) {
            continue;
        }
        if line.split(',').count() > 1 && line.starts_with(|c: char| c.is_ascii_digit()) {
            found.unread.add(number + 1, line);
        } else {
            columns = None;
        }
    }
    found
}
