//! A QEMU command within quotes: whole, as an error message cites it, or a list of its words, as programs log it.

use super::{MAX_ARGS, is_program};

/// Characters that open a cited command or a word of a list.
const OPENING: [char; 5] = ['\'', '"', '`', '(', '['];
/// The longest path of a program.
const MAX_PATH: usize = 256;

/// The command of a line that cites it as a whole (`command '/usr/bin/kvm -id 105 …' failed: got timeout`), without the
/// text around it; any other line as it is.
pub(super) fn unwrapped(line: &str) -> &str {
    let Some((at, _)) = programs(line).find(|(_, end)| end.starts_with([' ', '\t'])) else { return line };
    let Some(mark) = line.get(..at).and_then(|before| before.chars().next_back()) else { return line };
    let command = line.get(at..).unwrap_or(line);
    let closing = match mark {
        '(' => ')',
        '[' => ']',
        other => other,
    };
    // The mark that closes may stand behind that of the last word.
    let end = command.rfind(&format!("{closing} failed")).or_else(|| command.rfind(closing));
    end.and_then(|end| command.get(..end)).unwrap_or(command)
}

/// The words of a command that a program logged as a list: `["qemu-system-x86_64", "-name", …]`, in JSON, Python, Go,
/// Rust or Nim, on one line or several.
pub(super) fn list(text: &str) -> Option<Vec<String>> {
    programs(text).take(16).find_map(|(at, end)| {
        let rest = end.strip_prefix(['"', '\''])?;
        rest.trim_start().starts_with(',').then(|| words(text.get(at - 1..)?))?
    })
}

/// Where a program's name stands right behind a mark, and what follows it.
fn programs(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices(OPENING).filter_map(|(mark, _)| {
        let at = mark + 1;
        let rest = text.get(at..)?;
        let within = rest.bytes().take(MAX_PATH).position(|b| b.is_ascii_whitespace() || b"'\"`,)]".contains(&b))?;
        is_program(rest.get(..within)?).then_some((at, rest.get(within..)?))
    })
}

/// The quoted strings of a list, up to the bracket that closes it.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut chars = text.chars();
    while let Some(mark) = chars.next() {
        match mark {
            '"' | '\'' => {
                let mut word = String::new();
                loop {
                    match chars.next()? {
                        '\\' => word.extend(chars.next()),
                        c if c == mark => break,
                        c => word.push(c),
                    }
                }
                words.push(word);
            }
            ']' | ')' | '}' => break,
            _ => {}
        }
        if words.len() >= MAX_ARGS {
            break;
        }
    }
    (words.len() > 2).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::super::parse_text;

    #[test]
    fn a_cited_command_is_read_without_what_is_around_it() {
        let text = "TASK ERROR: start failed: command '/usr/bin/kvm -id 105 -name win10 -smp '8,sockets=1,cores=8' \
            -cpu 'host,hv_time,kvm=off' -global 'kvm-pit.lost_tick_policy=discard'' failed: got timeout";
        let command = parse_text(text).unwrap();
        assert_eq!((command.name.as_deref(), command.vcpus()), (Some("win10"), Some(8)));
        assert!(command.hv_time == Some(true) && command.device_properties.is_empty());
        let command = parse_text("I run `qemu-system-x86_64 -enable-kvm -smp 4 -m 4G` and it hangs").unwrap();
        assert_eq!((command.vcpus(), command.memory), (Some(4), Some(4 << 30)));
        // A program that is quoted by itself is an ordinary word.
        assert_eq!(parse_text("'/usr/bin/kvm' -smp 2 -name 'a b'").unwrap().name.as_deref(), Some("a b"));
    }

    #[test]
    fn a_list_of_words_is_read() {
        for text in [
            r#"exec: "/bin/qemu-system-x86_64", args: @["-name", "win", "-smp", "4", "-m", "8192"]"#,
            "\"Args\": [\n  \"qemu-system-x86_64\",\n  \"-name\", \"win\",\n  \"-smp\",\n  \"4\"\n]",
            "['qemu-kvm', '-name', 'guest=win,debug-threads=on', '-smp', '4']",
            "args=[qemu-system-x86_64 -name win -smp 4] pid=7",
        ] {
            let command = parse_text(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!((command.name.as_deref(), command.vcpus()), (Some("win"), Some(4)), "{text}");
        }
        for text in ["the list (\"qemu-system-x86_64\", \"qemu-img\")", "\"qemu-kvm\", \"", "['kvm', 'x"] {
            assert!(parse_text(text).is_err(), "{text}");
        }
    }
}
