//! The `__print_symbolic(expression, { value, "name" }, ...)` lists of a `print fmt`, and `__print_flags`.

use crate::{sanitize, untrusted_text::number};
use serde::{Deserialize, Serialize};

const MAX_NAMES: usize = 4096;
const MAX_LISTS: usize = 64;

/// One list of value names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
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
        self.expression.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == field)
    }
}

/// All lists of a `print fmt`. Unreadable parts are left out: the lists are useful, but not required.
pub(super) fn parse(text: &str) -> Vec<SymbolList> {
    let mut lists = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("__print_") {
        rest = rest.get(at + "__print_".len()..).unwrap_or_default();
        let flags = rest.starts_with("flags");
        if !flags && !rest.starts_with("symbolic") {
            continue;
        }
        let Some(open) = rest.find('(') else { break };
        rest = rest.get(open + 1..).unwrap_or_default();
        if lists.len() >= MAX_LISTS {
            break;
        }
        let (list, after) = parse_list(rest, flags);
        lists.push(list);
        rest = after;
    }
    lists
}

/// Reads from just after the opening parenthesis to its closing one.
fn parse_list(text: &str, flags: bool) -> (SymbolList, &str) {
    let mut list = SymbolList { flags, ..SymbolList::default() };
    let mut depth = 1u32;
    let mut end = text.len();
    let mut expression_end = None;
    let mut quoted = false;
    let mut entry = None;
    let mut previous = '\0';
    for (at, c) in text.char_indices() {
        if quoted {
            quoted = c != '"' || previous == '\\';
            previous = if previous == '\\' { '\0' } else { c };
            continue;
        }
        previous = c;
        match c {
            '"' => quoted = true,
            '(' => depth += 1,
            ')' => {
                depth -= 1;
                if depth == 0 {
                    end = at;
                    break;
                }
            }
            ',' if depth == 1 && entry.is_none() && expression_end.is_none() => expression_end = Some(at),
            '{' => entry = Some(at + 1),
            '}' => {
                if let Some(start) = entry.take()
                    && list.names.len() < MAX_NAMES
                    && let Some(pair) = text.get(start..at).and_then(parse_entry)
                {
                    list.names.push(pair);
                }
            }
            _ => {}
        }
    }
    let expression = text.get(..expression_end.unwrap_or(end)).unwrap_or_default();
    list.expression = sanitize(expression.replace("REC->", "").trim(), 200);
    (list, text.get(end..).unwrap_or_default())
}

/// ` 0x040 + 14, "PF excp" `
fn parse_entry(text: &str) -> Option<(u64, String)> {
    let (value, name) = text.split_once(',')?;
    let name = name.trim().strip_prefix('"')?.strip_suffix('"')?;
    Some((constant(value)?, sanitize(name, 64)))
}

/// Evaluates a constant as formats contain it: a number, a sum, an or, a shift, also with suffixes and in parentheses.
fn constant(text: &str) -> Option<u64> {
    let text = text.trim();
    let text = text.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')).map_or(text, str::trim);
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
        assert_eq!(lists[0].names, [(1, "x}),{".to_owned()), (2, "y".to_owned())]);
        assert!(lists[1].flags && lists[1].mentions("b") && lists[1].names.contains(&(1, "p".into())));
    }
}
