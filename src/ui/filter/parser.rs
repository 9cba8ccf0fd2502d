//! From a filter's text to a [`Filter`], by recursive descent.

use super::words::{FilterWord, is_expression, pieces};
use super::{Comparison, Filter, FilterError, FilterField, LONGEST, TextPattern};

/// Deepest nesting of parentheses and `not`.
const DEEPEST: usize = 16;

/// Reads a filter; `None` for an empty text, which shows every row.
///
/// # Errors
/// A sentence that says what is wrong, or what is still to be typed.
pub fn parse(text: &str, fields: &[FilterField]) -> Result<Option<Filter>, FilterError> {
    let text = text.trim();
    if text.chars().count() > LONGEST {
        return Err(FilterError(format!("a filter has at most {LONGEST} characters")));
    }
    if text.is_empty() {
        return Ok(None);
    }
    if !is_expression(text) {
        return Ok(Some(Filter::Name(TextPattern::new(text, false))));
    }
    let mut parser = Parser { pieces: pieces(text)?, at: 0, fields };
    let filter = parser.any(0)?;
    match parser.peek() {
        None => Ok(Some(filter)),
        Some(FilterWord::Close) => Err(FilterError("')' without '('".into())),
        Some(piece) => Err(FilterError(format!("'and' or 'or' is missing before {}", shown(piece)))),
    }
}

struct Parser<'a> {
    pieces: Vec<FilterWord>,
    at: usize,
    fields: &'a [FilterField],
}

impl Parser<'_> {
    fn peek(&self) -> Option<&FilterWord> {
        self.pieces.get(self.at)
    }

    fn next(&mut self) -> Option<FilterWord> {
        let piece = self.pieces.get(self.at).cloned();
        self.at += 1;
        piece
    }

    /// Goes past a keyword if it is the next word.
    fn keyword(&mut self, keyword: &str) -> bool {
        let is = matches!(self.peek(), Some(FilterWord::Word(w)) if w.eq_ignore_ascii_case(keyword))
            // `or=1` is the comparison of a column.
            && !matches!(self.pieces.get(self.at + 1), Some(FilterWord::Operator(_)));
        self.at += usize::from(is);
        is
    }

    fn any(&mut self, depth: usize) -> Result<Filter, FilterError> {
        let mut parts = vec![self.all(depth)?];
        while self.keyword("or") {
            parts.push(self.all(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Filter::Any(parts) })
    }

    fn all(&mut self, depth: usize) -> Result<Filter, FilterError> {
        let mut parts = vec![self.one(depth)?];
        while self.keyword("and") {
            parts.push(self.one(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Filter::All(parts) })
    }

    fn one(&mut self, depth: usize) -> Result<Filter, FilterError> {
        if depth > DEEPEST {
            return Err(FilterError(format!("more than {DEEPEST} conditions within each other")));
        }
        if self.keyword("not") {
            return Ok(Filter::Not(Box::new(self.one(depth + 1)?)));
        }
        match self.next() {
            Some(FilterWord::Open) => {
                let inner = self.any(depth + 1)?;
                match self.next() {
                    Some(FilterWord::Close) => Ok(inner),
                    None => Err(FilterError("')' is missing".into())),
                    Some(piece) => Err(FilterError(format!("'and', 'or' or ')' is missing before {}", shown(&piece)))),
                }
            }
            Some(FilterWord::Word(word)) => match self.peek() {
                Some(&FilterWord::Operator(operator)) => {
                    self.at += 1;
                    self.comparison(&word, operator)
                }
                _ if ["and", "or"].iter().any(|k| word.eq_ignore_ascii_case(k)) => {
                    Err(FilterError(format!("a condition is missing before '{word}'")))
                }
                _ => Ok(Filter::Name(TextPattern::new(&word, false))),
            },
            Some(FilterWord::Quoted(text)) => Ok(Filter::Name(TextPattern::new(&text, false))),
            Some(FilterWord::Operator(operator)) => {
                Err(FilterError(format!("a column is missing before '{operator}'")))
            }
            Some(FilterWord::Close) => Err(FilterError("a condition is missing before ')'".into())),
            None => Err(FilterError("a condition is missing at the end, such as cpu>50".into())),
        }
    }

    fn comparison(&mut self, name: &str, operator: &'static str) -> Result<Filter, FilterError> {
        let Some(field) = self.fields.iter().position(|f| f.name.eq_ignore_ascii_case(name)) else {
            let names: Vec<&str> = self.fields.iter().map(|f| f.name).collect();
            return Err(FilterError(format!("no column '{name}'; there are {}", names.join(", "))));
        };
        let (value, is_quoted) = match self.next() {
            Some(FilterWord::Word(word)) => (word, false),
            Some(FilterWord::Quoted(text)) => (text, true),
            None => return Err(FilterError(format!("a value is missing after {name}{operator}"))),
            Some(piece) => return Err(FilterError(format!("a value is missing before {}", shown(&piece)))),
        };
        let field_of = self.fields[field];
        let comparison = match (operator, value.as_str()) {
            ("=" | "!=", "-") if !is_quoted => Comparison::IsUnknown,
            ("=" | "!=", _) if field_of.is_text => Comparison::Matches(TextPattern::new(&value, true)),
            ("~", _) if field_of.is_text => Comparison::Matches(TextPattern::new(&value, false)),
            (_, _) if field_of.is_text => {
                return Err(FilterError(format!("{} is a text: compare it with =, != or ~", field_of.name)));
            }
            ("~", _) => {
                return Err(FilterError(format!(
                    "{} is a figure: compare it with =, !=, <, <=, > or >=",
                    field_of.name
                )));
            }
            _ => figure_comparison(operator, &value)?,
        };
        // `a<=5` is `not a>5`.
        Ok(Filter::Compare { field, comparison, negated: ["!=", "<=", ">="].contains(&operator) })
    }
}

fn figure_comparison(operator: &str, text: &str) -> Result<Comparison, FilterError> {
    let (value, step) =
        figure(text).ok_or_else(|| FilterError(format!("'{text}' is no figure; use 50, 12.5, 10k, 2M or 4GiB")))?;
    Ok(match operator {
        ">" | "<=" => Comparison::Above(value),
        "<" | ">=" => Comparison::Below(value),
        _ => Comparison::Within(value - step / 2.0, value + step / 2.0),
    })
}

/// A figure with a unit, and what its last digit stands for: 12.5k is 12,500, to 100.
fn figure(text: &str) -> Option<(f64, f64)> {
    let text = text.trim_end_matches("/s").trim_end_matches('%');
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-' && c != '+').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        "t" => 1e12,
        "ki" | "kib" => 1024.0,
        "mi" | "mib" => 1_048_576.0,
        "gi" | "gib" => 1_073_741_824.0,
        "ti" | "tib" => 1_099_511_627_776.0,
        _ => return None,
    };
    let value: f64 = digits.parse().ok().filter(|v: &f64| v.is_finite())?;
    let decimals = digits.split_once('.').map_or(0, |(_, d)| d.len());
    Some((value * unit, unit * 0.1_f64.powi(decimals as i32)))
}

fn shown(piece: &FilterWord) -> String {
    match piece {
        FilterWord::Word(text) | FilterWord::Quoted(text) => format!("'{text}'"),
        FilterWord::Operator(o) => format!("'{o}'"),
        FilterWord::Open => "'('".into(),
        FilterWord::Close => "')'".into(),
    }
}
