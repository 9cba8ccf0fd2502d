//! A line without what dmesg, journald, syslog, netconsole and QEMU put in front of it.

use super::names;
use std::borrow::Cow;

/// Longest line of a journal in JSON that is read.
const MAX_JSON: usize = 64 * 1024;

/// The message of a line.
#[derive(Debug, Default)]
pub(super) struct Message<'a> {
    /// Seconds since boot.
    pub time_s: Option<f64>,
    /// Whether the line begins with a time stamp or with the name of a program, as a log's does.
    pub stamped: bool,
    /// The process id of the program that wrote it, unless that is the kernel.
    pub writer: Option<i32>,
    /// The program that wrote it, such as `QEMU` or `systemd-oomd`.
    pub program: Option<&'a str>,
    /// The rest.
    pub text: Cow<'a, str>,
}

/// Takes a cleaned line apart.
pub(super) fn message(line: &str) -> Message<'_> {
    let line = unquoted(line);
    if let Some(message) = of_journal(line) {
        return message;
    }
    let mut found = Message::default();
    let mut rest = line.strip_prefix("MESSAGE=").unwrap_or(line);
    // A relayed line can have several prefixes, one in front of the other.
    for _ in 0..8 {
        let Some(next) = prefix(rest, &mut found) else { break };
        found.stamped = true;
        rest = next.trim_start();
    }
    found.text = Cow::Borrowed(rest);
    found
}

/// Whether the line has a stamp of the kernel's log.
pub(super) fn is_of_kernel(line: &str) -> bool {
    let found = message(line);
    found.time_s.is_some() || line.contains(" kernel: ") || found.stamped && found.program == Some("kernel")
}

/// The line without the marks of quoted mail.
fn unquoted(line: &str) -> &str {
    line.trim_start_matches([' ', '\t', '>']).trim_end()
}

/// An entry of `journalctl -o json`.
fn of_journal(line: &str) -> Option<Message<'static>> {
    if !line.starts_with('{') || line.len() > MAX_JSON || !line.contains("\"MESSAGE\"") {
        return None;
    }
    let entry: serde_json::Value = serde_json::from_str(line).ok()?;
    let text = entry.get("MESSAGE")?.as_str()?;
    let field = |name: &str| entry.get(name).and_then(serde_json::Value::as_str);
    let stamp = field("_SOURCE_MONOTONIC_TIMESTAMP").or_else(|| field("__MONOTONIC_TIMESTAMP"));
    Some(Message {
        time_s: stamp.and_then(names::number).map(|us| us as f64 / 1e6),
        stamped: true,
        writer: field("_PID").and_then(names::pid),
        program: None,
        text: Cow::Owned(super::super::sanitize(text, super::MAX_LINE)),
    })
}

/// What follows one known prefix; `None` without one.
fn prefix<'a>(text: &'a str, found: &mut Message<'a>) -> Option<&'a str> {
    syslog_priority(text)
        .or_else(|| netconsole(text))
        .or_else(|| bracket(text, found))
        .or_else(|| dmesg_level(text))
        .or_else(|| dated(text, found))
        .or_else(|| kernel(text, found))
}

/// `<3>`, or `<3>1 ` of RFC 5424.
fn syslog_priority(text: &str) -> Option<&str> {
    let (number, rest) = text.strip_prefix('<')?.split_once('>')?;
    let digits = !number.is_empty() && number.len() <= 3 && number.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| rest.strip_prefix("1 ").unwrap_or(rest))
}

/// `6,1234,56789012,-;` (Documentation/networking/netconsole.rst, extended console).
fn netconsole(text: &str) -> Option<&str> {
    let (head, rest) = text.split_once(';')?;
    let mut fields = head.split(',');
    let numbers = fields.by_ref().take(3).filter(|f| !f.is_empty() && f.bytes().all(|b| b.is_ascii_digit())).count();
    (numbers == 3 && fields.next().is_some()).then_some(rest)
}

/// `[   12.345678]`, `[Mon Nov 20 10:00:00 2023]`, `[  +0.000012]`, and `[ T1234]` or `[    C3]` of `PRINTK_CALLER`.
fn bracket<'a>(text: &'a str, found: &mut Message<'_>) -> Option<&'a str> {
    let (inner, rest) = text.strip_prefix('[')?.split_once(']')?;
    let inner = inner.trim();
    if let Some(seconds) = seconds(inner) {
        found.time_s = found.time_s.or(Some(seconds));
        return Some(rest);
    }
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let caller = inner.strip_prefix(['T', 'C']).is_some_and(digits);
    let relative = inner.strip_prefix('+').is_some_and(|s| seconds(s).is_some());
    let date = inner.len() < 40 && inner.split_whitespace().any(is_clock);
    (caller || relative || date).then_some(rest)
}

/// `12.345678`.
fn seconds(text: &str) -> Option<f64> {
    let (whole, fraction) = text.trim().split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits(whole) && digits(fraction) { text.trim().parse().ok() } else { None }
}

/// `kern  :err   : ` of `dmesg -x`.
fn dmesg_level(text: &str) -> Option<&str> {
    let (facility, rest) = text.split_once(':')?;
    let (level, rest) = rest.split_once(':')?;
    let known = matches!(facility.trim(), "kern" | "user" | "daemon" | "syslog" | "auth" | "local0");
    let word = |w: &str| !w.is_empty() && w.len() <= 8 && w.bytes().all(|b| b.is_ascii_lowercase());
    (known && word(level.trim())).then_some(rest)
}

/// A date and, in a journal or a syslog, the host and the program.
fn dated<'a>(text: &'a str, found: &mut Message<'a>) -> Option<&'a str> {
    let rest = date(text)?;
    Some(host_and_program(rest.trim_start(), found).unwrap_or(rest))
}

/// What follows `Nov 20 10:00:00`, `2023-11-20T10:00:00+0100`, `2023-11-20 10:00:00.123+0000:` or
/// `Mon 2023-11-20 10:00:00 CET`.
fn date(text: &str) -> Option<&str> {
    const DAYS: [&str; 7] = ["Mon ", "Tue ", "Wed ", "Thu ", "Fri ", "Sat ", "Sun "];
    const MONTHS: [&str; 12] =
        ["Jan ", "Feb ", "Mar ", "Apr ", "May ", "Jun ", "Jul ", "Aug ", "Sep ", "Oct ", "Nov ", "Dec "];
    let full = DAYS.iter().find_map(|day| text.strip_prefix(day));
    let text = full.unwrap_or(text);
    if let Some(rest) = MONTHS.iter().find_map(|month| text.strip_prefix(month)) {
        let (day, rest) = word(rest);
        let (clock, rest) = word(rest);
        return (day.bytes().all(|b| b.is_ascii_digit()) && is_clock(clock)).then_some(rest);
    }
    let (first, rest) = word(text);
    if !is_iso_day(first) {
        return None;
    }
    if first.contains('T') {
        return Some(rest);
    }
    let (clock, rest) = word(rest);
    if !is_clock(clock) {
        return None;
    }
    // The zone of `journalctl -o short-full`.
    Some(if full.is_some() { word(rest).1 } else { rest })
}

/// The first word, and the rest.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_once(' ').unwrap_or((text, ""))
}

/// `2023-11-20`, with or without a clock behind it.
fn is_iso_day(word: &str) -> bool {
    let bytes = word.as_bytes();
    let digit = |i: usize| bytes.get(i).is_some_and(u8::is_ascii_digit);
    (0..4).all(digit) && bytes.get(4) == Some(&b'-') && digit(5) && bytes.get(7) == Some(&b'-') && digit(8)
}

/// `10:00:00` and what may follow it.
fn is_clock(word: &str) -> bool {
    let bytes = word.as_bytes();
    let digit = |i: usize| bytes.get(i).is_some_and(u8::is_ascii_digit);
    digit(0) && digit(1) && bytes.get(2) == Some(&b':') && digit(3) && bytes.get(5) == Some(&b':') && digit(6)
}

/// What follows `host program[123]: `.
fn host_and_program<'a>(text: &'a str, found: &mut Message<'a>) -> Option<&'a str> {
    let (host, rest) = text.split_once(' ')?;
    // `CPU 0/KVM[12]: segfault` behind a date of dmesg has no host.
    if host.ends_with(':') || host == "CPU" {
        return None;
    }
    let (program, rest) = rest.trim_start().split_once(": ")?;
    if program.contains(' ') || program.len() > 64 || !program.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let (name, pid) = program.split_once('[').map_or((program, None), |(name, pid)| (name, names::pid(pid)));
    found.program = Some(name);
    found.writer = pid.filter(|_| name != "kernel");
    Some(rest)
}

/// What follows `kernel: ` or `host kernel: `.
fn kernel<'a>(text: &'a str, found: &mut Message<'a>) -> Option<&'a str> {
    let rest = text.strip_prefix("kernel: ").or_else(|| {
        let (host, rest) = text.split_once(' ')?;
        let plain = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        rest.strip_prefix("kernel: ").filter(|_| plain)
    })?;
    found.program = Some("kernel");
    Some(rest)
}
