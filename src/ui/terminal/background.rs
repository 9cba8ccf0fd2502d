//! The terminal's own background, asked for with OSC 11 (xterm, Control Sequences). The answer,
//! `OSC 11 ; rgb:R/G/B ST`, comes between keys, at once or late on a slow line: nothing waits for it. It reaches the
//! program as `Alt-]`, a key for each of its letters, and `Alt-\` or `Ctrl-G` at its end.

use crate::ui::theme::Tone;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};

/// What asks for it.
pub const QUESTION: &str = "\x1b]11;?\x1b\\";
/// What every answer begins with.
const BEGINS: &str = "11;rgb";
/// Longest answer: `11;rgba:` and four colours of four digits.
const MAX_ANSWER: usize = 28;

/// What an event means.
#[derive(Debug, Default, PartialEq)]
pub struct Heard {
    /// Events outside any answer, in their order.
    pub events: Vec<Event>,
    /// The answer, if this was its end.
    pub tone: Option<Tone>,
}

/// Tells an answer from keys.
#[derive(Debug, Default)]
pub struct AnswerReader {
    held: Vec<Event>,
    text: String,
}

impl AnswerReader {
    /// Takes an event. What could be the beginning of an answer is held until it is clear.
    pub fn hear(&mut self, event: Event) -> Heard {
        let Event::Key(key) = event else { return self.release(event) };
        let with = |modifier| key.modifiers.contains(modifier);
        let is_plain = !with(KeyModifiers::ALT) && !with(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char(']') if with(KeyModifiers::ALT) && self.held.is_empty() => {
                self.held.push(event);
                Heard::default()
            }
            _ if self.held.is_empty() => Heard { events: vec![event], tone: None },
            KeyCode::Char(c) if is_plain && self.could_go_on_with(c) => {
                self.text.push(c);
                self.held.push(event);
                Heard::default()
            }
            _ if ends(key) => match tone(&self.text) {
                None => self.release(event),
                tone => {
                    *self = Self::default();
                    Heard { events: Vec::new(), tone }
                }
            },
            _ => self.release(event),
        }
    }

    fn could_go_on_with(&self, c: char) -> bool {
        let at = self.text.len();
        let fits = BEGINS.chars().nth(at).map_or(c.is_ascii_hexdigit() || ":/".contains(c), |wanted| wanted == c);
        fits && at < MAX_ANSWER
    }

    /// Returns the held events with `last`: they were not an answer.
    fn release(&mut self, last: Event) -> Heard {
        let Self { held: mut events, .. } = std::mem::take(self);
        events.push(last);
        Heard { events, tone: None }
    }
}

/// String terminator or BEL.
fn ends(key: KeyEvent) -> bool {
    matches!(
        (key.code, key.modifiers),
        (KeyCode::Char('\\'), KeyModifiers::ALT) | (KeyCode::Char('g'), KeyModifiers::CONTROL)
    )
}

/// The tone of `11;rgb:ffff/ffff/ffff`: each colour has one to four hexadecimal digits (X11, `XParseColor`).
fn tone(answer: &str) -> Option<Tone> {
    let colours = answer.strip_prefix("11;rgb:").or_else(|| answer.strip_prefix("11;rgba:"))?;
    let part = |text: &str| {
        let digits = u32::try_from(text.len()).ok().filter(|n| (1..=4).contains(n))?;
        let value = u32::from_str_radix(text, 16).ok()?;
        Some(f64::from(value) / f64::from(16_u32.pow(digits) - 1))
    };
    let parts: Vec<f64> = colours.split('/').map(part).collect::<Option<_>>()?;
    let &[red, green, blue, ..] = parts.as_slice() else { return None };
    let light = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    Some(if light > 0.5 { Tone::Light } else { Tone::Dark })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: char, modifiers: KeyModifiers) -> Event {
        Event::Key(KeyEvent::new(KeyCode::Char(code), modifiers))
    }

    /// The events of `^]`, letters, and `^\` or `^G`.
    fn events(text: &str) -> Vec<Event> {
        let mut chars = text.chars();
        let mut all = Vec::new();
        while let Some(c) = chars.next() {
            all.push(match c {
                '^' => match chars.next().unwrap() {
                    'G' => key('g', KeyModifiers::CONTROL),
                    c => key(c, KeyModifiers::ALT),
                },
                c => key(c, KeyModifiers::NONE),
            });
        }
        all
    }

    fn heard(text: &str) -> (Vec<Event>, Option<Tone>) {
        let mut reader = AnswerReader::default();
        let mut all = (Vec::new(), None);
        for event in events(text) {
            let heard = reader.hear(event);
            all.0.extend(heard.events);
            all.1 = heard.tone.or(all.1);
        }
        all
    }

    #[test]
    fn an_answer_says_the_tone_and_presses_no_key() {
        for (text, tone) in [
            ("^]11;rgb:ffff/ffff/ffff^\\", Tone::Light),
            ("^]11;rgb:fdfd/f6f6/e3e3^G", Tone::Light),
            ("^]11;rgb:1c1c/1c1c/1c1c^\\", Tone::Dark),
            ("^]11;rgb:00/2b/36^\\", Tone::Dark),
            ("^]11;rgba:ffff/ffff/ffff/ffff^\\", Tone::Light),
        ] {
            assert_eq!(heard(text), (Vec::new(), Some(tone)), "{text}");
        }
        let (keys, tone) = heard("j^]11;rgb:ffff/ffff/ffff^\\r");
        assert_eq!((keys, tone), (events("jr"), Some(Tone::Light)));
    }

    #[test]
    fn keys_that_are_no_answer_are_pressed() {
        for text in ["jk]", "^]r", "^]11r", "^]11;rgb:zz", "^]11;rgb:^\\", "^]11;rgb:12345/0/0^\\", "^x^]^]j"] {
            assert_eq!(heard(text), (events(text), None), "{text}");
        }
        let endless = format!("^]11;rgb:{}r", "f".repeat(60));
        assert_eq!(heard(&endless).0.len(), events(&endless).len());
    }
}
