//! Joins lines of a log that mail or a terminal wrapped.

use super::message::message;
use crate::pattern::Pattern;

/// Shorter lines were not wrapped.
const MIN_WRAPPED: usize = 50;
/// Pieces that one line is joined from.
const MAX_PIECES: usize = 4;
/// Length of a joined line, bytes.
const MAX_JOINED: usize = 1024;

/// A line of KVM that ends in the middle: after its header, or before a number.
static CUT: Pattern = Pattern::new(concat!(
    r"kvm.*(?:guest rip: *[^ ]*|[ :,](?:rdmsr|wrmsr|data|unhandled|ignored|unimplemented|",
    r"suberror)[ :,]*)$|kvm \[.*[ :,]vcpu[^ :,]*[ :,]*$",
));
/// The beginning of a line that does not continue another.
static BEGINNING: Pattern = Pattern::new(r"^(?:kvm|qemu|svm:|vmx:|\*\*\*|error:|\[)");

/// Calls `put` with each line of a text, with the pieces of wrapped lines joined.
///
/// In a log whose lines begin with a stamp, a line without one continues the previous line. Lines without a stamp are
/// joined only where KVM's words show that the line was cut.
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

/// Whether a line of KVM, in lower case, ends in the middle.
pub(super) fn is_cut(lower: &str) -> bool {
    CUT.is_match(lower)
}

/// Whether a line continues the previous one.
fn continues(previous: &str, line: &str) -> bool {
    if previous.len() + line.len() > MAX_JOINED {
        return false;
    }
    let next = message(line);
    if next.stamped || next.text.is_empty() {
        return false;
    }
    let text = next.text.to_ascii_lowercase();
    let begins = BEGINNING.is_match(&text);
    let previous = previous.trim_end();
    let first = message(previous);
    if is_cut(&first.text.to_ascii_lowercase()) {
        return !begins;
    }
    // `[CPU 0/KVM:1234]` can be the second piece; a stamp was excluded above.
    first.time_s.is_some() && previous.len() >= MIN_WRAPPED && (!begins || text.starts_with('['))
}
