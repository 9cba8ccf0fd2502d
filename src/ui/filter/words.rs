//! A filter's text as words, operators and parentheses.

use super::FilterError;

/// A piece of a filter's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterWord {
    /// A word as it was typed.
    Word(String),
    /// Text in quotes: never an operator and never a keyword.
    Quoted(String),
    /// `=`, `!=`, `<`, `<=`, `>`, `>=` or `~`.
    Operator(&'static str),
    /// `(`
    Open,
    /// `)`
    Close,
}

const OPERATORS: [&str; 8] = ["!=", "<=", ">=", "==", "=", "<", ">", "~"];

fn operator_at(text: &str) -> Option<&'static str> {
    OPERATORS.into_iter().find(|o| text.starts_with(o))
}

/// Whether the text is an expression: it has an operator, a parenthesis or a quote, or a keyword between its words.
pub fn is_expression(text: &str) -> bool {
    let keyword = |w: &str| ["and", "or", "not"].iter().any(|k| w.eq_ignore_ascii_case(k));
    text.contains(['=', '<', '>', '~', '(', ')', '"', '\''])
        || (text.split_whitespace().count() > 1 && text.split_whitespace().any(keyword))
}

/// Cuts a filter's text into pieces, each with the character where it begins.
///
/// # Errors
/// When a quote is not closed.
pub fn pieces(text: &str) -> Result<Vec<(usize, FilterWord)>, FilterError> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let at = text[..text.len() - rest.len()].chars().count();
        if c.is_whitespace() {
            rest = &rest[c.len_utf8()..];
        } else if let Some(operator) = operator_at(rest) {
            out.push((at, FilterWord::Operator(if operator == "==" { "=" } else { operator })));
            rest = &rest[operator.len()..];
        } else if c == '(' || c == ')' {
            out.push((at, if c == '(' { FilterWord::Open } else { FilterWord::Close }));
            rest = &rest[1..];
        } else if c == '"' || c == '\'' {
            let Some(end) = rest[1..].find(c) else {
                return Err(FilterError { at, why: format!("the quote {c} is not closed") });
            };
            out.push((at, FilterWord::Quoted(rest[1..=end].to_string())));
            rest = &rest[end + 2..];
        } else {
            let ends = |(at, c): &(usize, char)| {
                c.is_whitespace() || "()\"'".contains(*c) || operator_at(&rest[*at..]).is_some()
            };
            let end = rest.char_indices().find(ends).map_or(rest.len(), |(at, _)| at);
            out.push((at, FilterWord::Word(rest[..end].to_string())));
            rest = &rest[end..];
        }
    }
    Ok(out)
}
