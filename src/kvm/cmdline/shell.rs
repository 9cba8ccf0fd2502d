//! Shell text into words.

/// The commands of a text, one line each: lines that a backslash joins, and lines that go on with an option.
pub(super) fn commands(text: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut joined = false;
    for line in text.lines() {
        let line = line.trim_end();
        let (body, goes_on) = match line.strip_suffix('\\') {
            Some(body) => (body, true),
            None => (line, false),
        };
        let option = body.trim_start();
        // `-name`, not a bullet or a number: mails and tickets wrap lines without a backslash.
        let wrapped = option
            .strip_prefix('-')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '-'));
        match commands.last_mut() {
            Some(last) if joined || wrapped => {
                last.push(' ');
                last.push_str(body);
            }
            _ => commands.push(body.to_owned()),
        }
        joined = goes_on;
    }
    commands
}

/// Splits a command into words as a POSIX shell does, without expanding anything.
pub(super) fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut started = false;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' => {
                started = true;
                word.extend(chars.by_ref().take_while(|c| *c != '\''));
            }
            '"' => {
                started = true;
                while let Some(c) = chars.next() {
                    match c {
                        '"' => break,
                        '\\' => match chars.next() {
                            Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                            Some(c) => word.extend(['\\', c]),
                            None => {}
                        },
                        c => word.push(c),
                    }
                }
            }
            '\\' => {
                started = true;
                word.extend(chars.next());
            }
            c if c.is_whitespace() || c == '\0' => {
                if started {
                    words.push(std::mem::take(&mut word));
                    started = false;
                }
            }
            c => {
                started = true;
                word.push(c);
            }
        }
    }
    if started {
        words.push(word);
    }
    words
}
