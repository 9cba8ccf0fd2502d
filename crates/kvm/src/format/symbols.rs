//! The `__print_symbolic(expression, { value, "name" }, ...)` lists of a `print fmt`, and
//! `__print_flags`.

use crate::pattern::Pattern;
use crate::{sanitize, untrusted_text::number};

const MAX_NAMES: usize = 4096;
const MAX_LISTS: usize = 64;

/// One list of value names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SymbolList {
    /// The C expression that is looked up, without `REC->`: `exit_reason & 0xffff`.
    pub expression: String,
    /// Whether the values are bits (`__print_flags`) rather than alternatives.
    pub flags: bool,
    /// Values and their names, in the kernel's order, without values that are not constants.
    pub names: Vec<(u64, String)>,
}

impl SymbolList {
    /// Whether the expression uses this field.
    pub fn mentions(&self, field: &str) -> bool {
        self.expression
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|word| word == field)
    }
}

/// The head of a list, up to its first entry or, with flags, the separator.
static LIST: Pattern =
    Pattern::new(r#"__print_(?P<kind>flags|symbolic)\((?P<expression>[^"{]*),[ \t]*["{]"#);
/// ` { 0x040 + 14, "PF excp" }`
static ENTRY: Pattern =
    Pattern::new(r#"\{(?P<value>[^,{}"]*),[ \t]*"(?P<name>(?:[^"\\]|\\.)*)"[ \t]*\}"#);

/// All lists of a `print fmt`. Unreadable parts are left out: the lists are useful, but not
/// required.
pub(super) fn parse(text: &str) -> Vec<SymbolList> {
    let Some(list) = LIST.regex() else {
        return Vec::new();
    };
    let begins: Vec<usize> = list.find_iter(text).map(|head| head.start()).collect();
    let ends = begins.iter().skip(1).copied().chain([text.len()]);
    begins
        .iter()
        .zip(ends)
        .take(MAX_LISTS)
        .filter_map(|(begin, end)| parse_list(text.get(*begin..end)?))
        .collect()
}

/// Reads one list at the beginning of its part of the text.
fn parse_list(part: &str) -> Option<SymbolList> {
    let head = LIST.captures(part)?;
    // The head ends with the bracket of the first entry.
    let entries = part.get(head.get(0)?.end() - 1..)?;
    let names = ENTRY
        .regex()?
        .captures_iter(entries)
        .filter_map(|entry| Some((constant(&entry["value"])?, sanitize(&entry["name"], 64))));
    Some(SymbolList {
        expression: sanitize(head["expression"].replace("REC->", "").trim(), 200),
        flags: &head["kind"] == "flags",
        names: names.take(MAX_NAMES).collect(),
    })
}

/// Evaluates a constant as formats contain it: a number, a sum, an or, a shift, also with suffixes
/// and in parentheses.
fn constant(text: &str) -> Option<u64> {
    let text = text.trim();
    let text = text
        .strip_prefix('(')
        .and_then(|inner| inner.strip_suffix(')'))
        .map_or(text, str::trim);
    if let Some((a, b)) = text.split_once("<<") {
        return constant(a)?.checked_shl(u32::try_from(constant(b)?).ok()?);
    }
    if let Some((a, b)) = text.split_once('|') {
        return Some(term(a)? | constant(b)?);
    }
    if let Some((a, b)) = text.split_once('+') {
        return Some(term(a)?.wrapping_add(constant(b)?));
    }
    term(text)
}

fn term(text: &str) -> Option<u64> {
    number(text.trim().trim_end_matches(['u', 'U', 'l', 'L']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_of_real_formats_are_evaluated() {
        for (text, value) in [
            ("0x040 + 14", 0x4e),
            (" -1", u64::MAX),
            ("(1 << 3)", 8),
            ("1UL << 4", 16),
            ("0x80000000", 0x8000_0000),
            ("(1 | 2)", 3),
        ] {
            assert_eq!(constant(text), Some(value), "{text}");
        }
        assert_eq!(constant("SOME_ENUM"), None);
        assert_eq!(constant("1 << 99"), None);
        assert_eq!(constant("(((("), None);
    }

    #[test]
    fn quotes_hide_brackets() {
        let lists = parse(
            r#""%s", __print_symbolic(REC->a, { 1, "x}),{" }, { 2, "y" }), __print_flags(REC->b & 3, "|", {1,"p"})"#,
        );
        assert_eq!(lists.len(), 2);
        assert_eq!(
            lists[0].names,
            [(1, "x}),{".to_owned()), (2, "y".to_owned())]
        );
        assert!(
            lists[1].flags && lists[1].mentions("b") && lists[1].names.contains(&(1, "p".into()))
        );
    }
}
