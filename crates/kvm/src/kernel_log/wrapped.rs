//! Joins lines of a log that mail or a terminal wrapped.

use super::message::message;
use super::msr_line;

/// A line that is shorter was not wrapped.
const SHORTEST: usize = 50;
/// The most pieces that make a line.
const MAX_PIECES: usize = 4;
/// A line is not joined beyond this length, bytes.
const LONGEST: usize = 1024;

/// Calls `put` with each line of a text, with the pieces of wrapped lines joined.
///
/// In a log whose lines begin with a stamp, a line without one continues the line before. A line without a stamp is
/// known to be cut only where KVM's own words tell.
pub(super) fn unwrap_lines(text: &str, mut put: impl FnMut(&str)) {
    let mut whole = String::new();
    let mut pieces = 0;
    for line in text.lines() {
        if pieces > 0 && pieces < MAX_PIECES && continues(&whole, line) {
            whole.push(' ');
            whole.push_str(line.trim_start_matches([' ', '\t', '>']).trim_end());
            pieces += 1;
            continue;
        }
        if pieces > 0 {
            put(&whole);
        }
        whole.clear();
        whole.push_str(line);
        pieces = 1;
    }
    if pieces > 0 {
        put(&whole);
    }
}

fn continues(before: &str, line: &str) -> bool {
    if before.len() + line.len() > LONGEST {
        return false;
    }
    let next = message(line);
    if next.stamped || next.text.is_empty() {
        return false;
    }
    let text = next.text.to_ascii_lowercase();
    let begins = ["kvm", "qemu", "svm:", "vmx:", "***", "error:", "["].iter().any(|word| text.starts_with(word));
    let before = before.trim_end();
    let first = message(before);
    if msr_line::is_cut(&first.text.to_ascii_lowercase()) {
        return !begins;
    }
    // `[CPU 0/KVM:1234]` can be the second piece; a stamp was excluded above.
    first.time_s.is_some() && before.len() >= SHORTEST && (!begins || text.starts_with('['))
}
