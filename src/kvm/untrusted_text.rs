//! Makes untrusted text safe to show, and parses its numbers.

/// Makes untrusted text safe for a terminal: removes escape sequences, control characters, bidirectional and invisible
/// formatting characters, turns line breaks and tabs into spaces, and keeps at most `max` characters.
pub fn sanitize(text: &str, max: usize) -> String {
    let mut out = String::new();
    let mut kept = 0;
    let mut chars = text.chars().peekable();
    while kept < max {
        let Some(c) = chars.next() else { break };
        match c {
            '\u{1b}' => {
                // CSI: parameters up to a final byte. OSC: up to BEL or ESC. Anything else: only the ESC is removed.
                match chars.peek() {
                    Some('[') => {
                        chars.next();
                        for c in chars.by_ref() {
                            if ('\u{40}'..='\u{7e}').contains(&c) {
                                break;
                            }
                        }
                    }
                    Some(']') => {
                        while let Some(c) = chars.next_if(|c| *c != '\u{1b}') {
                            if c == '\u{7}' {
                                break;
                            }
                        }
                    }
                    _ => {}
                }
            }
            '\t' | '\n' => {
                out.push(' ');
                kept += 1;
            }
            c if is_hidden(c) => {}
            c => {
                out.push(c);
                kept += 1;
            }
        }
    }
    out
}

/// Whether a terminal acts on a character, or the character reorders or hides its neighbours.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Parses a number as C writes it: `0x1f`, `31`, with an optional minus (two's complement).
pub(crate) fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let (text, negative) = text.strip_prefix('-').map_or((text, false), |rest| (rest, true));
    let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16).ok()?,
        None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok()?,
        _ => return None,
    };
    Some(if negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terminal_codes_and_reordering_never_survive() {
        assert_eq!(sanitize("win\u{1b}[31m10\u{202e}x\u{7}", 64), "win10x");
        assert_eq!(sanitize("a\u{1b}]0;title\u{7}b\r\nc\td", 64), "ab c d");
        assert_eq!(sanitize("\u{9b}31mred", 64), "31mred");
        assert_eq!(sanitize("数据库-主机", 3), "数据库");
    }

    #[test]
    fn numbers_are_read_as_c_writes_them() {
        assert_eq!(number("0x1F"), Some(31));
        assert_eq!(number(" 12 "), Some(12));
        assert_eq!(number("-1"), Some(u64::MAX));
        assert_eq!(number("+1"), None);
        assert_eq!(number("0x"), None);
        assert_eq!(number(""), None);
    }

    proptest! {
        #[test]
        fn sanitized_text_is_bounded_and_plain(text in any::<String>(), max in 0usize..40) {
            let out = sanitize(&text, max);
            prop_assert!(out.chars().count() <= max);
            prop_assert!(!out.chars().any(is_hidden));
        }
    }
}
