//! Lines of a text that its reader could not use.

use kvm::sanitize;

/// Lines that are kept with their text.
const KEPT: usize = 3;

/// The first unread lines of a text, and the number of all unread lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreadLines {
    /// Line numbers, from 1, each with the line, cleaned and cut.
    pub first: Vec<(usize, String)>,
    /// Number of all unread lines.
    pub count: usize,
}

impl UnreadLines {
    /// Adds a line; `number` counts from 1.
    pub fn add(&mut self, number: usize, line: &str) {
        self.count += 1;
        if self.first.len() < KEPT {
            self.first.push((number, sanitize(line.trim(), 60)));
        }
    }

    /// A sentence for each kept line, and one for the rest.
    pub fn notes(&self) -> Vec<String> {
        let named = self.first.iter().map(|(line, text)| format!("line {line} is not read: {text}"));
        let mut notes: Vec<String> = named.collect();
        let rest = self.count.saturating_sub(self.first.len());
        if rest > 0 {
            notes.push(format!("{rest} more lines are not read"));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_lines_are_named_and_the_rest_is_counted() {
        let mut unread = UnreadLines::default();
        (1..=5).for_each(|n| unread.add(n, &format!("  odd \u{1b}[31m{n}")));
        assert_eq!(
            unread.notes(),
            [
                "line 1 is not read: odd 1",
                "line 2 is not read: odd 2",
                "line 3 is not read: odd 3",
                "2 more lines are not read"
            ]
        );
        assert!(UnreadLines::default().notes().is_empty());
    }
}
