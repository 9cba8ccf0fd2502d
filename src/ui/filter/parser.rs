//! From a filter's text to a [`Filter`], by recursive descent.

use super::words::{FilterWord, is_expression, pieces};
use super::{Comparison, Filter, FilterError, FilterField, MAX_LENGTH, TextPattern};

/// Deepest nesting of parentheses and `not`.
const MAX_DEPTH: usize = 16;

/// Reads a filter; `None` for an empty text, which shows every row.
///
/// # Errors
/// A sentence that says what is wrong, or what is still to be typed.
pub fn parse(text: &str, fields: &[FilterField]) -> Result<Option<Filter>, FilterError> {
    let length = text.chars().count();
    if length > MAX_LENGTH {
        return Err(FilterError { at: MAX_LENGTH, why: format!("a filter has at most {MAX_LENGTH} characters") });
    }
    if text.trim().is_empty() {
        return Ok(None);
    }
    if !is_expression(text) {
        return Ok(Some(Filter::Name(TextPattern::new(text.trim(), false))));
    }
    let mut parser = Parser { pieces: pieces(text)?, at: 0, length, fields };
    let filter = parser.any(0)?;
    match parser.peek() {
        None => Ok(Some(filter)),
        Some(FilterWord::Close) => parser.wrong(0, "')' without '('"),
        Some(_) => parser.wrong(0, "'and' or 'or' is missing"),
    }
}

struct Parser<'a> {
    pieces: Vec<(usize, FilterWord)>,
    at: usize,
    /// Characters of the text.
    length: usize,
    fields: &'a [FilterField],
}

impl Parser<'_> {
    fn peek(&self) -> Option<&FilterWord> {
        self.pieces.get(self.at).map(|(_, piece)| piece)
    }

    /// An error about the piece that many back; 0 is the next one.
    fn wrong<T>(&self, back: usize, why: impl Into<String>) -> Result<T, FilterError> {
        let at = self.at.checked_sub(back).and_then(|at| self.pieces.get(at)).map_or(self.length, |(at, _)| *at);
        Err(FilterError { at, why: why.into() })
    }

    fn next(&mut self) -> Option<FilterWord> {
        let piece = self.peek().cloned();
        self.at += 1;
        piece
    }

    /// Goes past a keyword if it is the next word.
    fn keyword(&mut self, keyword: &str) -> bool {
        let is = matches!(self.peek(), Some(FilterWord::Word(w)) if w.eq_ignore_ascii_case(keyword))
            // `or=1` is the comparison of a column.
            && !matches!(self.pieces.get(self.at + 1), Some((_, FilterWord::Operator(_))));
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
        if depth > MAX_DEPTH {
            return self.wrong(0, format!("more than {MAX_DEPTH} conditions within each other"));
        }
        if self.keyword("not") {
            return Ok(Filter::Not(Box::new(self.one(depth + 1)?)));
        }
        match self.next() {
            Some(FilterWord::Open) => {
                let inner = self.any(depth + 1)?;
                match self.next() {
                    Some(FilterWord::Close) => Ok(inner),
                    _ => self.wrong(1, "'and', 'or' or ')' is missing"),
                }
            }
            Some(FilterWord::Word(word)) => match self.peek() {
                Some(&FilterWord::Operator(operator)) => {
                    self.at += 1;
                    self.comparison(&word, operator)
                }
                _ if ["and", "or"].iter().any(|k| word.eq_ignore_ascii_case(k)) => {
                    self.wrong(1, "a condition is missing, such as cpu>50")
                }
                _ => Ok(Filter::Name(TextPattern::new(&word, false))),
            },
            Some(FilterWord::Quoted(text)) => Ok(Filter::Name(TextPattern::new(&text, false))),
            Some(FilterWord::Operator(_)) => self.wrong(1, "a column is missing"),
            Some(FilterWord::Close) | None => self.wrong(1, "a condition is missing, such as cpu>50"),
        }
    }

    fn comparison(&mut self, name: &str, operator: &'static str) -> Result<Filter, FilterError> {
        let Some(field) = self.fields.iter().position(|f| f.name.eq_ignore_ascii_case(name)) else {
            let names: Vec<&str> = self.fields.iter().map(|f| f.name).collect();
            return self.wrong(2, format!("no column '{name}'; there are {}", names.join(", ")));
        };
        let (value, is_quoted) = match self.next() {
            Some(FilterWord::Word(word)) => (word, false),
            Some(FilterWord::Quoted(text)) => (text, true),
            _ => return self.wrong(1, "a value is missing"),
        };
        let field_of = self.fields[field];
        let comparison = match (operator, value.as_str()) {
            ("=" | "!=", "-") if !is_quoted => Comparison::IsUnknown,
            ("=" | "!=", _) if field_of.is_text => Comparison::Matches(TextPattern::new(&value, true)),
            ("~", _) if field_of.is_text => Comparison::Matches(TextPattern::new(&value, false)),
            (_, _) if field_of.is_text => {
                return self.wrong(2, format!("{} is a text: compare it with =, != or ~", field_of.name));
            }
            ("~", _) => {
                return self.wrong(2, format!("{} is a figure: compare it with =, !=, <, <=, > or >=", field_of.name));
            }
            _ => match figure_comparison(operator, &value) {
                Some(comparison) => comparison,
                None => return self.wrong(1, format!("'{value}' is no figure; use 50, 12.5, 10k, 2M or 4GiB")),
            },
        };
        // `a<=5` is `not a>5`.
        let compare = Filter::Compare { field, comparison };
        Ok(if ["!=", "<=", ">="].contains(&operator) { Filter::Not(Box::new(compare)) } else { compare })
    }
}

fn figure_comparison(operator: &str, text: &str) -> Option<Comparison> {
    let (value, step) = figure(text)?;
    Some(match operator {
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
