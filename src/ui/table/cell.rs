//! The content of a cell, and the style of a row.

use crate::ui::StyleId;
use judge::cost;
use judge::figures::{self, UNKNOWN};
use judge::lint::Severity;

/// From this on, percent of the time that a vCPU wanted to run, guests begin to notice the wait.
const NOTICED_WAIT: f64 = 5.0;

/// Content of a cell.
#[derive(Debug, PartialEq)]
pub enum Cell {
    /// Text or a figure.
    Text(String, StyleId),
    /// A name, which is cut in its middle, and the state it is in.
    Name(String, Option<&'static str>, StyleId),
    /// A bar of guest, usr, sys and wait, and the value of the full bar.
    Bar([f64; 4], f64),
    /// A cost, with as many of its parts as fit.
    Cost(cost::Cost),
    /// The first of these texts that fits; the last is cut.
    FirstFit(Vec<String>),
}

impl Cell {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into(), StyleId::Text)
    }

    /// An empty cell.
    pub fn blank() -> Self {
        Self::text("")
    }

    /// A name: of one that is too long the middle is left out.
    pub fn name(name: impl Into<String>) -> Self {
        Self::Name(name.into(), None, StyleId::Text)
    }

    /// A value that no source gave.
    pub fn unknown() -> Self {
        Self::Text(UNKNOWN.into(), StyleId::Dim)
    }

    /// A value printed by `print`, or unknown.
    pub fn figure(value: Option<f64>, print: fn(f64) -> String) -> Self {
        value.map_or_else(Self::unknown, |v| Self::text(print(v)))
    }

    /// A wait, percent of the time that a vCPU wanted to run.
    pub fn wait(percent: Option<f64>) -> Self {
        let is_noticed = percent.is_some_and(|wait| wait >= NOTICED_WAIT);
        Self::figure(percent, figures::percent).styled(if is_noticed {
            StyleId::Wait
        } else {
            StyleId::Text
        })
    }

    /// Whether it holds a value.
    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Text(t, _) if t == UNKNOWN || t.is_empty())
    }

    /// The same cell in another style; an unknown value stays dim.
    #[must_use]
    pub fn styled(self, style: StyleId) -> Self {
        match self {
            Self::Text(t, _) if t != UNKNOWN => Self::Text(t, style),
            Self::Name(name, state, _) => Self::Name(name, state, style),
            other => other,
        }
    }
}

/// Style of a row as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum RowStyle {
    /// As its cells are.
    #[default]
    Plain,
    /// Less important.
    Dim,
    /// Part of a finding of this severity: a mark in front of the row.
    Severity(Severity),
}
