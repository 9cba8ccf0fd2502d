//! Splits shell text into commands and words.

use super::is_program;
use shlex::Shlex;

/// The commands of a text, each as one line. Joins lines that end with a backslash, and lines that continue with an
/// option or its value.
pub(crate) fn commands(text: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    // Whether the last command names a QEMU: a search in a command that grows would cost the square of its length.
    let (mut joined, mut program) = (false, false);
    for line in text.lines() {
        let line = line.trim_end();
        let (body, goes_on) = match line.strip_suffix('\\') {
            Some(body) => (body, true),
            None => (line, false),
        };
        let option = body.trim_start();
        // An option such as `-name`, not a bullet or a number: mails and tickets wrap lines without a backslash.
        let wrapped = option
            .strip_prefix('-')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '-'));
        // A comment of a script, or a backslash that a mail program wrapped onto a separate line.
        if joined && option.starts_with('#') || goes_on && option.is_empty() {
            joined = true;
            continue;
        }
        match commands.last_mut() {
            Some(last)
                if joined
                    || wrapped
                    || !option.is_empty() && program && is_incomplete(last) && !starts_another(option) =>
            {
                if !last.ends_with(',') {
                    last.push(' ');
                }
                last.push_str(if last.ends_with(',') { option } else { body });
                program |= option.split_whitespace().any(is_program);
            }
            _ => {
                commands.push(body.to_owned());
                program = option.split_whitespace().any(is_program);
            }
        }
        joined = goes_on;
    }
    commands
}

/// Whether a QEMU command ends with an option, whose value can be on the next line, or within a list of values.
fn is_incomplete(command: &str) -> bool {
    let command = command.trim_end();
    // Options are short; what mail joined at commas can be a word of any length.
    let begin = command.char_indices().rev().take(64).find(|(_, c)| c.is_whitespace());
    let last = begin.and_then(|(at, space)| command.get(at + space.len_utf8()..)).unwrap_or_default();
    let option = last.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()));
    option || command.ends_with(',')
}

/// Whether a line starts something else: a prompt, a comment, or another QEMU.
fn starts_another(line: &str) -> bool {
    line.starts_with(['$', '#', '>', '(']) || line.split_whitespace().any(is_program)
}

/// Splits a command into words as a POSIX shell does, without expanding anything. A word that the text cuts off within
/// quotes is left out.
pub(crate) fn words(text: &str) -> Vec<String> {
    Shlex::new(&text.replace('\0', " ")).collect()
}
