//! What a tool, an editor or a page puts on every line of a text that it shows: numbers, bars, a diff's signs, quote
//! marks, an indentation, blank lines between. A mark goes where all lines have it, and numbers where they count lines,
//! so that no table whose rows begin with a number loses its first column.

use std::borrow::Cow;

/// So many marks stand before each other at most: numbers in a diff in a quote.
const DEPTH: usize = 6;
/// Lines by which a text is judged whose blocks can differ.
const SHOWN: usize = 20_000;
/// Rows of numbered lines in one text.
const MAX_ROWS: usize = 1024;
/// A row of numbered lines that is so long counts lines, even with other lines around it.
const SURE: usize = 5;
/// A line's number has so many digits at most; those of an address and a time are more.
const DIGITS: usize = 7;
/// A mark with a name before its bar (`docker compose logs`) is so long at most, bytes.
const MAX_BAR: usize = 40;

/// A text without the marks on its lines.
pub(super) fn without(text: &str) -> Cow<'_, str> {
    let steps = [
        without_quotes,
        without_numbers,
        without_spaces,
        without_numbers_between,
        without_diff,
        without_bars,
        without_blank_lines,
    ];
    let mut text = Cow::Borrowed(text);
    for _ in 0..DEPTH {
        let mut changed = false;
        for step in steps {
            if let Cow::Owned(plain) = step(&text) {
                (text, changed) = (Cow::Owned(plain), true);
            }
        }
        if !changed {
            break;
        }
    }
    text
}

/// Each line as `change` makes it; lines stay lines.
pub(super) fn by_line<'a, L: AsRef<str>>(text: &'a str, mut change: impl FnMut(&'a str) -> L) -> Cow<'static, str> {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        out.push_str(change(line).as_ref());
        out.push('\n');
    }
    Cow::Owned(out)
}

fn written(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim().is_empty())
}

/// Without the indentation that all lines share and the spaces at their ends.
fn without_spaces(text: &str) -> Cow<'_, str> {
    const SPACES: [char; 2] = [' ', '\t'];
    let Some(first) = written(text).next() else { return Cow::Borrowed(text) };
    let mut shared = first.get(..first.len() - first.trim_start_matches(SPACES).len()).unwrap_or_default();
    for line in written(text) {
        let same = shared.bytes().zip(line.bytes()).take_while(|(a, b)| a == b).count();
        shared = shared.get(..same).unwrap_or_default();
        if shared.is_empty() {
            break;
        }
    }
    if shared.is_empty() && !text.lines().any(|line| line.ends_with(SPACES)) {
        return Cow::Borrowed(text);
    }
    by_line(text, |line| line.strip_prefix(shared).unwrap_or_default().trim_end_matches(SPACES))
}

/// Without the quote marks of mail: of all lines if most have them, else of each block of two and more.
fn without_quotes(text: &str) -> Cow<'_, str> {
    let is_quoted = |line: &&str| line.trim_start().starts_with('>');
    let lines = || written(text).take(SHOWN);
    let (quoted, all) = (lines().filter(is_quoted).count(), lines().count());
    // An element's last mark can stand on a line of its own.
    let alone = lines().filter(|line| line.trim() == ">").count();
    if quoted == 0 || (quoted * 2 <= all && (quoted < 2 || alone == quoted)) {
        return Cow::Borrowed(text);
    }
    by_line(text, |line| if is_quoted(&line) { unquoted(line) } else { line })
}

/// A quoted line without its marks, each of which may be followed by a space; the text's own indentation stays.
fn unquoted(line: &str) -> &str {
    let mut rest = line;
    while let Some(inner) = rest.trim_start().strip_prefix('>') {
        rest = inner.strip_prefix(' ').unwrap_or(inner);
    }
    rest
}

/// What stands between a line's number and its text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Separator {
    /// `cat -n`, also where a terminal has put spaces for the tab.
    Tab,
    Bar,
    /// `grep -n`, `12: text`.
    Colon,
    /// `12. text`, `12) text`.
    Point,
    Spaces,
}

/// A line's number, how it is set off, and the line's text. A blank line's number can stand alone.
fn number(line: &str) -> Option<(u32, Option<Separator>, &str)> {
    let unindented = line.trim_start();
    let digits = unindented.bytes().take_while(u8::is_ascii_digit).count();
    let n = unindented.get(..digits).filter(|_| (1..=DIGITS).contains(&digits))?.parse().ok()?;
    let rest = unindented.get(digits..)?;
    if rest.trim().is_empty() {
        return Some((n, None, ""));
    }
    // coreutils, src/cat.c: six columns and a tab, which reaches the eighth.
    let of_cat = line.len() - rest.len() == 6 && rest.starts_with("  ");
    let (separator, text) = if let Some(text) = rest.trim_start().strip_prefix(['|', '│', '┃']) {
        (Separator::Bar, text)
    } else if let Some(text) = rest.strip_prefix('\t') {
        (Separator::Tab, text)
    } else if of_cat {
        (Separator::Tab, rest.get(2..)?)
    } else if let Some(text) = rest.strip_prefix(':').filter(|text| !is_of_time(text)) {
        (Separator::Colon, text)
    } else if let Some(text) = rest.strip_prefix(['.', ')']).filter(|text| text.is_empty() || text.starts_with(' ')) {
        (Separator::Point, text)
    } else if rest.starts_with(' ') {
        (Separator::Spaces, rest)
    } else {
        return None;
    };
    Some((n, Some(separator), text))
}

/// Whether minutes and seconds follow the hour of a time of day.
fn is_of_time(text: &str) -> bool {
    let two = |text: &str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
    let end = text.find(|c: char| c != ':' && !c.is_ascii_digit()).unwrap_or(text.len());
    let parts = text.get(..end).and_then(|time| time.split_once(':'));
    parts.is_some_and(|(minutes, seconds)| two(minutes) && two(seconds))
}

/// Lines that are numbered one after the other.
struct NumberedLines {
    separator: Option<Separator>,
    /// Positions in the text of its first line and its last.
    lines: (usize, usize),
    first: u32,
    next: u32,
    numbered: usize,
    /// Those in it without a number: mail has wrapped the line before.
    between: usize,
    /// Whether there are words: rows of a table go on with the next column.
    has_words: bool,
}

impl NumberedLines {
    fn begin(at: usize, n: u32) -> Self {
        let (separator, lines) = (None, (at, at));
        Self { separator, lines, first: n, next: n, numbered: 0, between: 0, has_words: false }
    }

    /// Adds a line, if it is the next one.
    fn add(&mut self, at: usize, n: u32, separator: Option<Separator>, text: &str) -> bool {
        let same = separator.is_none() || self.separator.is_none() || separator == self.separator;
        if n != self.next || !same {
            return false;
        }
        self.separator = self.separator.or(separator);
        self.has_words |= match self.separator {
            Some(Separator::Spaces) => !text.trim_start().starts_with(|c: char| c.is_ascii_digit()),
            _ => text.bytes().any(|b| b.is_ascii_alphabetic()),
        };
        (self.lines.1, self.next, self.numbered) = (at, n.saturating_add(1), self.numbered + 1);
        true
    }

    /// Whether these numbers count lines. What counts CPUs and nodes begins at 0 or has a heading.
    fn counts_lines(&self, written: usize) -> bool {
        let is_all = self.numbered == written;
        self.first > 0
            && self.has_words
            && match self.separator {
                None => false,
                Some(Separator::Spaces) => is_all && self.first == 1 && self.numbered >= 3,
                Some(_) if is_all => self.first == 1 || self.numbered >= 3,
                Some(_) => self.numbered >= SURE && self.between <= self.numbered,
            }
    }
}

/// Without the numbers of lines.
fn without_numbers(text: &str) -> Cow<'_, str> {
    if is_search(text) {
        return by_line(text, |line| number(line).map_or(line, |(.., text)| text));
    }
    let mut rows: Vec<NumberedLines> = Vec::new();
    let (mut open, mut unnumbered, mut all) = (None::<NumberedLines>, 0, 0);
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        all += 1;
        let Some((n, separator, text)) = number(line) else {
            unnumbered += 1;
            continue;
        };
        if let Some(row) = open.as_mut().filter(|row| n == row.next)
            && row.add(at, n, separator, text)
        {
            row.between += unnumbered;
        } else {
            let mut row = NumberedLines::begin(at, n);
            row.add(at, n, separator, text);
            rows.extend(open.replace(row).filter(|b| b.numbered >= SURE && rows.len() < MAX_ROWS));
        }
        unnumbered = 0;
    }
    rows.extend(open);
    rows.retain(|row| row.counts_lines(all));
    if rows.is_empty() {
        return Cow::Borrowed(text);
    }
    let (mut rows, mut at) = (rows.iter().peekable(), 0);
    by_line(text, |line| {
        while rows.next_if(|row| row.lines.1 < at).is_some() {}
        let inside = rows.peek().filter(|row| row.lines.0 <= at);
        at += 1;
        let found = number(line)
            .filter(|(_, separator, _)| inside.is_some_and(|row| separator.is_none() || *separator == row.separator));
        found.map_or(line, |(.., text)| text)
    })
}

/// Whether all lines are those that `grep -n` found: their numbers rise and leave lines out.
fn is_search(text: &str) -> bool {
    let (mut before, mut has_words, mut lines) = (0, false, 0);
    for line in written(text) {
        match number(line) {
            Some((n, Some(Separator::Colon), text)) if n > before => {
                has_words |= text.bytes().any(|b| b.is_ascii_alphabetic());
                (before, lines) = (n, lines + 1);
            }
            _ => return false,
        }
    }
    has_words && lines >= 3
}

/// Without the numbers that stand on lines of their own, as a page's table of numbers and lines is copied.
fn without_numbers_between(text: &str) -> Cow<'_, str> {
    let alone = |line: &str| number(line).filter(|(_, separator, _)| separator.is_none()).map(|(n, ..)| n);
    let (mut numbers, mut texts, mut next) = (0_usize, 0_usize, None);
    for line in written(text) {
        match alone(line) {
            Some(n) if n == next.unwrap_or(1) => (numbers, next) = (numbers + 1, Some(n + 1)),
            Some(_) => return Cow::Borrowed(text),
            None => texts += 1,
        }
        // Blank lines have numbers, too.
        if texts > numbers {
            return Cow::Borrowed(text);
        }
    }
    if texts < 2 {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for line in text.lines().filter(|line| alone(line).is_none()) {
        out.push_str(line);
        out.push('\n');
    }
    Cow::Owned(out)
}

/// The new text of a diff, or of lines that were all added.
fn without_diff(text: &str) -> Cow<'_, str> {
    const HEADS: [&str; 7] = ["diff ", "index ", "--- ", "+++ ", "@@ ", "new file mode ", "\\ No newline"];
    let is_head = |line: &&str| HEADS.iter().any(|head| line.starts_with(head));
    let Some(first) = text.lines().find(|line| !line.trim().is_empty() && !is_head(line)) else {
        return Cow::Borrowed(text);
    };
    let has_hunk = || text.lines().take(SHOWN).any(|line| line.starts_with("@@ -"));
    if !(first.starts_with('+') || first.starts_with([' ', '-']) && has_hunk()) {
        return Cow::Borrowed(text);
    }
    let hunk = has_hunk();
    let is_of_diff = |line: &str| line.starts_with('+') || is_head(&line) || hunk && line.starts_with([' ', '-']);
    if !written(text).all(is_of_diff) {
        return Cow::Borrowed(text);
    }
    by_line(text, |line| match line {
        line if is_head(&line) => "",
        line => line.strip_prefix('+').or_else(|| line.strip_prefix(' ')).unwrap_or_default(),
    })
}

/// Without the bar that all lines begin with, and the name before it.
fn without_bars(text: &str) -> Cow<'_, str> {
    const BARS: [char; 3] = ['|', '│', '┃'];
    let mark = written(text).next().and_then(|first| {
        let (at, bar) = first.char_indices().find(|(_, c)| BARS.contains(c))?;
        let name = first.get(..at)?.trim();
        // A row of a table ends with a bar; of one that has columns, the first differs from row to row.
        let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        let mark = first.get(..at + bar.len_utf8()).filter(|mark| mark.len() <= MAX_BAR)?;
        (is_name && !first.trim_end().ends_with(BARS)).then_some(mark)
    });
    let Some(mark) = mark.filter(|mark| written(text).all(|line| line.starts_with(mark))) else {
        return Cow::Borrowed(text);
    };
    by_line(text, |line| line.strip_prefix(mark).unwrap_or_default())
}

/// Without the blank lines that a page puts between all lines.
fn without_blank_lines(text: &str) -> Cow<'_, str> {
    let (mut gap, mut lines) = (0, 0);
    for line in text.lines() {
        if line.trim().is_empty() {
            gap += 1;
            continue;
        }
        if lines > 0 && gap == 0 {
            return Cow::Borrowed(text);
        }
        (gap, lines) = (0, lines + 1);
    }
    if lines < 3 {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut gap = 0_usize;
    for line in text.lines() {
        if line.trim().is_empty() {
            gap += 1;
            continue;
        }
        // A line that was blank before stands between two that were put in.
        out.extend(std::iter::repeat_n('\n', gap.saturating_sub(1) / 2));
        out.push_str(line);
        out.push('\n');
        gap = 0;
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks_go_and_the_text_stays() {
        for (shown, text) in [
            ("     1\t<a>\n     2\t  <b/>\n     3\t</a>\n", "<a>\n  <b/>\n</a>\n"),
            ("     9  <a>\n    10    <b/>\n    11  </a>\n", "<a>\n  <b/>\n</a>\n"),
            ("1 │ <a>\n2 │\n3 │ </a>\n", "<a>\n\n</a>\n"),
            ("3:<a>\n17:  <b/>\n40:</a>\n", "<a>\n  <b/>\n</a>\n"),
            ("1 <a>\n2   <b/>\n3 </a>\n", "<a>\n  <b/>\n</a>\n"),
            ("1\n<a>\n2\n3\n</a>\n", "<a>\n</a>\n"),
            // Mail has wrapped the second line, and somebody says something about it.
            (
                "see here:\n1. aaa\n2. bbb\nbb\n3. ccc\n4. ddd\n5. eee\nThanks\n",
                "see here:\n aaa\n bbb\nbb\n ccc\n ddd\n eee\nThanks\n",
            ),
            ("+<a>\n+  <b/>\n", "<a>\n  <b/>\n"),
            ("--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n <a>\n-  <b/>\n+  <c/>\n </a>\n", "\n\n\n<a>\n\n  <c/>\n</a>\n"),
            ("> a\n>   b\n> > c\n", "a\n  b\nc\n"),
            ("vm-1  | a\nvm-1  |   b\nvm-1  |\n", "a\n  b\n\n"),
            ("a\n\nb\n\n\n\nc\n", "a\nb\n\nc\n"),
            ("  a\n    b  \n\n  c\n", "a\n  b\n\nc\n"),
            ("> \t 1:+a\n> \t 2:+ b\n", "a\n b\n"),
        ] {
            assert_eq!(without(shown), text, "{shown:?}");
        }
    }

    #[test]
    fn tables_keep_their_columns() {
        for text in [
            "VCPU: CPU Affinity\n----------------------------------\n   0: 0-3\n   1: 4-7\n   2: 4-7\n   3: 4-7\n",
            "1: 0-3\n2: 4-7\n3: 8-11\n4: 8-11\n5: 8-11\n",
            " VCPU   CPU Affinity\n----------------------\n 0      0-3\n 1      4-7\n",
            "IOThread ID     CPU Affinity\n---\n 1               0-3\n 2               4-7\n",
            "CPU NODE SOCKET CORE ONLINE\n  0    0      0    0    yes\n  1    0      0    1    yes\n",
            "1    0      0    0    yes\n2    0      0    1    yes\n3    0      0    1    yes\n",
            " Id   Name   State\n------\n 1    a      running\n 2    b      running\n 3    c      running\n",
            "# CPU,Core,Socket,Node\n0,0,0,0\n1,1,0,0\n",
            "node distances:\nnode   0   1\n  0:  10  21\n  1:  21  10\n",
            "           CPU0\n  0:   37   IO-APIC  timer\n  1:    9   IO-APIC  i8042\n  8:    1   IO-APIC  rtc0\n",
            "10:15:01 a\n11:15:01 b\n12:15:01 c\n",
            "1: lo: <LOOPBACK>\n    link/loopback\n2: vnet0: <BROADCAST>\n    link/ether\n",
            "| a | b |\n| 1 | 2 |\n",
            "a | 1\nb | 2\n",
            "4391 CPU 0/KVM\n4392 CPU 1/KVM\n4393 CPU 2/KVM\n",
            "1\n2\n3\n",
            "a\n\nb\n",
            "<name\n>x</name>",
        ] {
            let plain = without(text);
            assert!(plain.lines().map(str::trim).eq(text.lines().map(str::trim)), "{text:?} became {plain:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived_and_grows_by_no_more_than_a_line_end(text in "[0-9:.|+> \t\nab<@-]{0,80}") {
            let plain = without(&text).into_owned();
            prop_assert!(plain.len() <= text.len() + 1);
        }
    }
}
