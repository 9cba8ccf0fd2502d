//! Removes the prefixes that dmesg, journald, syslog and netconsole put before a message.

use crate::pattern::{Pattern, group, number, pid};

/// Prefixes that are removed from one line: a relayed line can have several.
const MAX_PREFIXES: usize = 8;

/// The message of a line.
#[derive(Debug, Default)]
pub(super) struct Message<'a> {
    /// Seconds since boot.
    pub time_s: Option<f64>,
    /// The process id of the program that wrote the line, unless that is the kernel.
    pub writer: Option<i32>,
    /// The rest of the line.
    pub text: &'a str,
}

/// The known prefixes. Group `s` is the time since boot; `name` and `pid` belong to the program.
static PREFIXES: [Pattern; 7] = [
    // Syslog's priority, and the version of RFC 5424.
    Pattern::new("^<[0-9]{1,3}>(?:1 )?"),
    // `6,1234,56789012,-;` (Documentation/networking/netconsole.rst, extended console).
    Pattern::new("^[0-9]+,[0-9]+,[0-9]+,[^;]*;"),
    Pattern::new(r"^\[ *(?P<s>[0-9]+\.[0-9]+) *\]"),
    // `dmesg -d`; `CONFIG_PRINTK_CALLER`; `dmesg -T`, in any language.
    Pattern::new(concat!(
        r"^\[ *(?:\+[0-9]+\.[0-9]+|[TC][0-9]+|(?:[^ 0-9:\[\]]+ [^ 0-9:\[\]]+ +[0-9]{1,2} ",
        r"[0-9]{2}:[0-9]{2}:[0-9]{2} [0-9]{4})) *\]",
    )),
    // `dmesg -x`.
    Pattern::new("^(?:kern|user|daemon|syslog|auth|local0) *:[a-z ]{1,10}:"),
    // The date of a syslog or journal with its host and program, then without them.
    Pattern::new(
        r"(?x)^(?:
        # Months of any language.
        (?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\ )?[^\ 0-9:/\[\]]{3,9}\ +[0-9]{1,2}
            \ +[0-9]{2}:[0-9]{2}:[0-9]{2}[^\ ]*
        | (?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\ [0-9]{4}-[0-9]{2}-[0-9]{2}
            \ +[0-9]{2}:[0-9]{2}:[0-9]{2}[^\ ]*\ [^\ ]+
        | [0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[^\ ]*|\ +[0-9]{2}:[0-9]{2}:[0-9]{2}[^\ ]*)
        )(?:\ +(?:[^\ ]*[^\ :]\ +(?P<name>[A-Za-z][^\ \[]{0,63}?)
            (?:\[(?P<pid>[0-9]*)[^\ ]*)?:\ )?|$)",
    ),
    Pattern::new("^(?:[A-Za-z0-9._-]* )?(?P<name>kernel): "),
];

/// Splits a cleaned line into its prefixes and its message.
pub(super) fn message(line: &str) -> Message<'_> {
    let mut rest = line.trim();
    let mut found = Message::default();
    for _ in 0..MAX_PREFIXES {
        let Some(prefix) = PREFIXES.iter().find_map(|prefix| prefix.captures(rest)) else {
            break;
        };
        let end = prefix.get(0).map_or(0, |whole| whole.end());
        found.time_s = found.time_s.or_else(|| number(&prefix, "s"));
        let name = group(&prefix, "name");
        if name.is_some_and(|name| name != "kernel") {
            found.writer = pid(&prefix, "pid");
        }
        rest = rest.get(end..).unwrap_or_default().trim_start();
    }
    found.text = rest;
    found
}
