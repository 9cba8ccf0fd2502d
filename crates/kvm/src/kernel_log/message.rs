//! Removes the prefixes that dmesg, journald, syslog, netconsole and QEMU put before a message.

use super::reader::{HARMLESS, PROSE};
use crate::pattern::{Pattern, group, number, pid};

/// Prefixes that are removed from one line: a relayed line can have several.
const MAX_PREFIXES: usize = 8;

/// The message of a line.
#[derive(Debug, Default)]
pub(super) struct Message<'a> {
    /// Seconds since boot.
    pub time_s: Option<f64>,
    /// Whether the line begins with a time stamp or with the name of a program, as lines of a log do.
    pub stamped: bool,
    /// The process id of the program that wrote the line, unless that is the kernel.
    pub writer: Option<i32>,
    /// The program that wrote the line, such as `QEMU` or `systemd-oomd`.
    pub program: Option<&'a str>,
    /// The rest of the line.
    pub text: &'a str,
}

/// The known prefixes. Group `s` is the time since boot; `name` and `pid` belong to the program.
static PREFIXES: [Pattern; 8] = [
    // Syslog's priority, and the version of RFC 5424.
    Pattern::new("^<[0-9]{1,3}>(?:1 )?"),
    // `6,1234,56789012,-;` (Documentation/networking/netconsole.rst, extended console).
    Pattern::new("^[0-9]+,[0-9]+,[0-9]+,[^;]*;"),
    Pattern::new(r"^\[ *(?P<s>[0-9]+\.[0-9]+) *\]"),
    // `dmesg -d`; `CONFIG_PRINTK_CALLER`; `dmesg -T`.
    Pattern::new(r"^\[ *(?:\+[0-9]+\.[0-9]+|[TC][0-9]+|[^\]]{0,30}[0-9]{2}:[0-9]{2}:[0-9]{2}[^\]]{0,30}) *\]"),
    // `dmesg -x`.
    Pattern::new("^(?:kern|user|daemon|syslog|auth|local0) *:[a-z ]{1,10}:"),
    // The date of a syslog or journal with its host and program, then without them.
    Pattern::new(
        r"(?x)^(?:
        # Months of any language.
        (?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\ )?[^\ 0-9:/\[\]]{3,9}\ +[0-9]{1,2}
            \ +[0-9]{2}:[0-9]{2}:[0-9]{2}[^\ ]*
        | (?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\ [0-9]{4}-[0-9]{2}-[0-9]{2}\ +[0-9]{2}:[0-9]{2}:[0-9]{2}[^\ ]*\ [^\ ]+
        | [0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[^\ ]*|\ +[0-9]{2}:[0-9]{2}:[0-9]{2}[^\ ]*)
        )(?:\ +(?:[^\ ]*[^\ :]\ +(?P<name>[A-Za-z][^\ \[]{0,63}?)(?:\[(?P<pid>[0-9]*)[^\ ]*)?:\ )?|$)",
    ),
    Pattern::new("^(?:[A-Za-z0-9._-]* )?(?P<name>kernel): "),
    Pattern::new("^MESSAGE="),
];

/// Splits a cleaned line into its prefixes and its message.
pub(super) fn message(line: &str) -> Message<'_> {
    let mut rest = line.trim_start_matches([' ', '\t', '>']).trim_end();
    let mut found = Message::default();
    for _ in 0..MAX_PREFIXES {
        let Some(prefix) = PREFIXES.iter().find_map(|prefix| prefix.captures(rest)) else { break };
        let end = prefix.get(0).map_or(0, |whole| whole.end());
        found.stamped |= !rest.starts_with("MESSAGE=");
        found.time_s = found.time_s.or_else(|| number(&prefix, "s"));
        if let Some(name) = group(&prefix, "name") {
            found.program = Some(name);
            found.writer = pid(&prefix, "pid").filter(|_| name != "kernel");
        }
        rest = rest.get(end..).unwrap_or_default().trim_start();
    }
    found.text = rest;
    found
}

/// `[Sun Oct  6 16:59:21 2019]`, in any language.
static OF_DMESG: Pattern =
    Pattern::new(r"^\[[^ 0-9:\[\]]+ [^ 0-9:\[\]]+ +[0-9]{1,2} [0-9]{2}:[0-9]{2}:[0-9]{2} [0-9]{4}\]");

/// Whether the line has a stamp of the kernel's log.
pub(super) fn is_from_kernel(line: &str) -> bool {
    let found = message(line);
    OF_DMESG.is_match(line.trim_start())
        || found.time_s.is_some()
        || line.contains(" kernel: ")
        || found.program == Some("kernel")
}

/// Shorter lines were not wrapped, unless the rest is indented.
const MIN_WRAPPED: usize = 50;
/// Pieces that one line is joined from.
const MAX_PIECES: usize = 4;

/// The beginning of a line that does not continue another.
static BEGINNING: Pattern =
    Pattern::new(r"(?i-u)^(?:kvm|qemu|svm:|vmx:|\*\*\*|error:|[0-9]{2,4}[-/:][0-9]{2}[-/:]|[a-z0-9]+(?:_[a-z0-9]+)+:)");
/// A program's message without a stamp.
static OF_PROGRAM: Pattern = Pattern::new("^(?:kvm|qemu[^ :]*|error|libvirt): ");
/// The rest of a sentence that was cut: it begins in lower case, with a figure or within quotes.
static REST: Pattern = Pattern::new("^[a-z0-9`'\"(]");

/// Calls `put` with each line of a text, with the pieces of lines joined that mail, a post or a terminal wrapped: in a
/// log whose lines begin with a stamp, a line without one continues the previous line; elsewhere one that is indented
/// or begins within a sentence continues a program's message.
pub(super) fn unwrap_lines<'a>(lines: impl Iterator<Item = &'a str>, mut put: impl FnMut(&str)) {
    let mut lines = lines.peekable();
    while let Some(first) = lines.next() {
        let mut whole = first.to_owned();
        for _ in 1..MAX_PIECES {
            let Some(next) = lines.next_if(|line| continues(whole.trim_end(), line)) else { break };
            whole.push(' ');
            whole.push_str(next.trim_start_matches([' ', '\t', '>']).trim_end());
        }
        put(&whole);
    }
}

fn continues(previous: &str, line: &str) -> bool {
    let next = message(line);
    if next.stamped || next.text.is_empty() || BEGINNING.is_match(next.text) || previous.ends_with('\\') {
        return false;
    }
    let (before, is_long) = (message(previous), previous.len() >= MIN_WRAPPED);
    if before.time_s.is_some() {
        return is_long;
    }
    let is_indented = line.starts_with([' ', '\t']) && !previous.starts_with([' ', '\t']);
    let lower = next.text.to_ascii_lowercase();
    let is_rest =
        is_long && REST.is_match(next.text) && ![&PROSE, &HARMLESS].iter().any(|pattern| pattern.is_match(&lower));
    // `kvm_set_msr_common:` and its register.
    if previous.ends_with("_msr_common:") {
        return next.text.starts_with("MSR_");
    }
    (before.stamped || OF_PROGRAM.is_match(before.text)) && (is_indented || is_rest)
}
