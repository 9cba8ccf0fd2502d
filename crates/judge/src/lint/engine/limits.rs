//! How large a finding, and all of them together, may become. Input is hostile: a few bytes of it name thousands of
//! vCPUs or guests, and a report that lists all of them for each of them grows with the square of the input.

use super::finding::{Finding, is_command};

/// The most findings of one interval.
pub(crate) const MAX_FINDINGS: usize = 16_384;
/// The most text in all findings of one interval, bytes.
pub(crate) const MAX_TEXT: usize = 64 << 20;
/// The most lines of evidence of one finding, not counting the commands that check it.
const MAX_EVIDENCE: usize = 32;
/// The most characters of a line of evidence.
const MAX_CHARS: usize = 2000;
/// The most other guests that one finding names.
const MAX_GUESTS: usize = 1024;
/// The most cells that one finding marks.
const MAX_MARKS: usize = 16_384;

impl Finding {
    /// The finding with its lists cut to a readable length; what is left out is counted.
    pub(crate) fn limited(mut self) -> Self {
        let guests = self.also.len().saturating_sub(MAX_GUESTS);
        self.also.truncate(MAX_GUESTS);
        if guests > 0 || self.evidence.len() > MAX_EVIDENCE {
            let (checks, mut lines): (Vec<String>, Vec<String>) =
                std::mem::take(&mut self.evidence).into_iter().partition(|line| is_command(line));
            let more = lines.len().saturating_sub(MAX_EVIDENCE);
            lines.truncate(MAX_EVIDENCE);
            lines.extend((more > 0).then(|| format!("and {more} more such lines")));
            lines.extend((guests > 0).then(|| format!("and {guests} more guests")));
            lines.extend(checks.into_iter().take(MAX_EVIDENCE));
            self.evidence = lines;
        }
        self.evidence.iter_mut().for_each(shorten);
        self.marks.truncate(MAX_MARKS);
        self
    }

    /// The length of its texts, bytes.
    pub(crate) fn text_len(&self) -> usize {
        let lists = self.evidence.iter().chain(&self.also).chain(&self.see).map(String::len);
        let fixes = self.fix.iter().map(|f| f.text.len() + f.needs.as_ref().map_or(0, String::len));
        self.title.len() + self.why.len() + lists.sum::<usize>() + fixes.sum::<usize>()
    }
}

/// Cuts a line that is too long.
fn shorten(line: &mut String) {
    if let Some((at, _)) = line.char_indices().nth(MAX_CHARS) {
        line.truncate(at);
        line.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut_and_what_is_left_out_is_counted() {
        let mut evidence: Vec<String> = (0..100).map(|i| format!("vCPU {i}")).collect();
        evidence.insert(1, "x".repeat(3 * MAX_CHARS));
        evidence.push("check: virsh vcpupin a".into());
        let also = (0..MAX_GUESTS + 7).map(|i| i.to_string()).collect();
        let finding = Finding { also, evidence, ..Finding::default() }.limited();
        assert_eq!(finding.evidence.len(), MAX_EVIDENCE + 3);
        let tail: Vec<_> = finding.evidence.iter().skip(MAX_EVIDENCE).map(String::as_str).collect();
        assert_eq!(tail, ["and 69 more such lines", "and 7 more guests", "check: virsh vcpupin a"]);
        assert_eq!(finding.evidence[1].chars().count(), MAX_CHARS + 1);
        assert_eq!(finding.also.len(), MAX_GUESTS);
        let few = Finding { evidence: vec!["a".into(), "check: b".into(), "c".into()], ..Finding::default() }.limited();
        assert_eq!(few.evidence, ["a", "check: b", "c"]);
    }
}
