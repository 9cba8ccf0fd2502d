//! Text on the screen: sanitised, measured, cut and wrapped.

use kvm::sanitize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Longest name that is kept, in characters.
const MAX_NAME: usize = 256;
/// Longest line of a finding's or a source's text that is kept, in characters.
const MAX_LINE: usize = 4096;

/// Text from guests and files, without what a terminal would act on.
pub fn clean(text: &str) -> String {
    sanitize(text, MAX_NAME)
}

/// The same for a sentence: a title, a figure, a cause.
pub fn clean_line(text: &str) -> String {
    sanitize(text, MAX_LINE)
}

/// The same for the sentences and commands of findings and sources; line breaks stay.
pub fn clean_lines(text: &str) -> String {
    text.lines()
        .map(|line| sanitize(line, MAX_LINE))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Width on the screen in columns.
pub fn width(text: &str) -> u16 {
    text.width().min(usize::from(u16::MAX)) as u16
}

/// Cuts text to a width in columns; `mark` (one column wide) ends text that was cut.
pub fn fit(text: &str, columns: u16, mark: char) -> String {
    if width(text) <= columns {
        return text.to_string();
    }
    let mut kept = cut(text, columns.saturating_sub(1));
    if columns > 0 {
        kept.push(mark);
    }
    kept
}

/// Cuts a sentence after a word to fit a width in columns; `mark` ends text that was cut. A first
/// word wider than the whole width is cut itself.
pub fn fit_words(text: &str, columns: u16, mark: char) -> String {
    if width(text) <= columns {
        return text.to_string();
    }
    // A blank and the mark follow.
    let mut end = 0;
    for (at, _) in text.match_indices(' ') {
        if width(&text[..at]).saturating_add(2) > columns {
            break;
        }
        end = at;
    }
    let kept = text[..end].trim_end_matches([' ', ',', ';', ':', '(']);
    if kept.is_empty() {
        fit(text, columns, mark)
    } else {
        format!("{kept} {mark}")
    }
}

/// Cuts a name to a width in columns in its middle: names of guests differ at their ends as often
/// as at their beginnings.
pub fn fit_middle(name: &str, columns: u16, mark: char) -> String {
    if width(name) <= columns || columns < 4 {
        return fit(name, columns, mark);
    }
    let room = columns - 1;
    let head = cut(name, room.div_ceil(2));
    let backwards: String = name.chars().rev().collect();
    let tail = cut(&backwards, room - width(&head));
    head.chars()
        .chain([mark])
        .chain(tail.chars().rev())
        .collect()
}

/// Units that stay on the line of their figure.
const UNITS: [&str; 10] = ["%", "us", "ms", "s", "min", "h", "B", "KiB", "MiB", "GiB"];

/// The words of a line; a figure and its unit are one.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in line.split(' ').filter(|w| !w.is_empty()) {
        let is_unit = UNITS.contains(&word.trim_end_matches(|c: char| ",.;:)".contains(c)));
        match words
            .last_mut()
            .filter(|last| is_unit && last.ends_with(|c: char| c.is_ascii_alphanumeric()))
        {
            Some(last) if last.starts_with(|c: char| "(+-<".contains(c) || c.is_ascii_digit()) => {
                *last = format!("{last} {word}");
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// Breaks text into lines of at most `columns` columns, at spaces where there are any; line breaks
/// in the text stay.
pub fn wrap(text: &str, columns: u16) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let indent: String = paragraph.chars().take_while(|c| *c == ' ').collect();
        let mut line = indent.clone();
        for mut word in words(paragraph) {
            let gap = u16::from(line.len() > indent.len());
            if width(&line)
                .saturating_add(gap)
                .saturating_add(width(&word))
                > columns
                && line.len() > indent.len()
            {
                lines.push(std::mem::replace(&mut line, indent.clone()));
            }
            if line.len() > indent.len() {
                line.push(' ');
            }
            while width(&line).saturating_add(width(&word)) > columns {
                let first = word.chars().next().map_or(0, char::len_utf8);
                let head = cut(&word, columns.saturating_sub(width(&line)));
                let head = if head.is_empty() {
                    word[..first].to_owned()
                } else {
                    head
                };
                word = word[head.len()..].to_string();
                line.push_str(&head);
                if word.is_empty() {
                    break;
                }
                lines.push(std::mem::take(&mut line));
            }
            line.push_str(&word);
        }
        lines.push(line);
    }
    lines
}

/// Breaks text into at most so many lines; `mark` ends text that was cut.
pub fn wrap_to(text: &str, (columns, lines): (u16, usize), mark: char) -> Vec<String> {
    let mut all = wrap(text, columns);
    if all.len() > lines {
        all.truncate(lines);
        // What follows is longer than any room: the mark stands for it.
        let rest = "x".repeat(columns.into());
        if let Some(last) = all.last_mut() {
            *last = fit_words(&format!("{last} {rest}"), columns, mark);
        }
    }
    all
}

/// The beginning of a text that fits a width in columns.
fn cut(text: &str, columns: u16) -> String {
    let mut used = 0;
    let mut kept = String::new();
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > columns.into() {
            break;
        }
        kept.push(c);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_wider_than_any_screen_is_broken() {
        // A width beyond 65,535 counts as 65,535.
        let lines = wrap(&format!("a {}", "x".repeat(70_000)), 80);
        assert!(lines.iter().all(|line| width(line) <= 80));
    }

    #[test]
    fn long_sentences_are_kept_whole_and_harmless() {
        let why = "word ".repeat(200) + "end";
        assert_eq!(clean_lines(&why), why);
        assert_eq!(
            clean_lines("one\n  two\u{1b}[2J"),
            format!("one\n{}", clean("  two\u{1b}[2J"))
        );
        assert!(!clean_lines("\u{1b}]52;c;x\u{7}").contains(['\u{1b}', '\u{7}']));
    }

    #[test]
    fn wide_text_is_cut_between_characters() {
        assert_eq!(fit("数据库-主机", 5, '~'), "数据~");
        assert_eq!(fit("数据库-主机", 6, '~'), "数据~");
        assert_eq!(fit("short", 5, '~'), "short");
        assert_eq!(fit("shorter", 5, '~'), "shor~");
        assert_eq!(fit("x", 0, '~'), "");
    }

    #[test]
    fn sentences_are_cut_behind_a_word_and_names_in_the_middle() {
        assert_eq!(fit_words("one two three", 13, '~'), "one two three");
        assert_eq!(fit_words("one two three", 12, '~'), "one two ~");
        assert_eq!(fit_words("one two, three", 10, '~'), "one two ~");
        assert_eq!(fit_words("onetwothree four", 5, '~'), "onet~");
        assert_eq!(fit_words("数据库 主机 数据", 12, '~'), "数据库 ~");
        assert_eq!(fit_middle("web-frontend-01", 9, '~'), "web-~d-01");
        assert_eq!(fit_middle("web-frontend-01", 15, '~'), "web-frontend-01");
        assert_eq!(fit_middle("数据库主机数据", 8, '~'), "数据~据");
        assert_eq!(fit_middle("abc", 2, '~'), "a~");
        for columns in 0..20 {
            assert!(
                width(&fit_middle("数据库-主机-web", columns, '~')) <= columns,
                "{columns}"
            );
            assert!(
                width(&fit_words("数据库 主机 web", columns, '~')) <= columns,
                "{columns}"
            );
        }
    }

    #[test]
    fn text_keeps_to_its_lines() {
        assert_eq!(
            wrap_to("one two three four", (9, 2), '~'),
            ["one two", "three ~"]
        );
        assert_eq!(wrap_to("one two", (9, 2), '~'), ["one two"]);
    }

    #[test]
    fn lines_break_at_spaces_and_words_only_when_they_must() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("  one two", 6), ["  one", "  two"]);
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap("数据库", 2), ["数", "据", "库"]);
        assert_eq!(wrap("a\n\nb", 5), ["a", "", "b"]);
        assert_eq!(wrap("数", 1), ["数"]);
        assert_eq!(
            wrap("takes 583 us, 22 % of it", 9),
            ["takes", "583 us,", "22 % of", "it"]
        );
    }
}
