//! What the user chose for the list of guests, as the config file keeps it.

use super::Lens;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The section `[screen]` of the config file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScreenChoices {
    /// The lens.
    pub lens: Option<Lens>,
    /// Seconds between samples of a live screen.
    pub interval: Option<f64>,
    /// Names of the list's columns in each lens, left to right.
    pub columns: BTreeMap<Lens, Vec<String>>,
    /// The column that the list is sorted by in each lens; `-` before its name reverses the order.
    pub sort: BTreeMap<Lens, String>,
}

impl ScreenChoices {
    /// The section as text.
    pub fn to_toml(&self) -> String {
        let mut text = String::from("[screen]\n");
        if let Some(lens) = self.lens {
            _ = writeln!(text, "lens = '{}'", lens.name());
        }
        if let Some(seconds) = self.interval {
            _ = writeln!(text, "interval = {seconds:?}");
        }
        if !self.columns.is_empty() {
            text.push_str("[screen.columns]\n");
        }
        for (lens, names) in &self.columns {
            _ = writeln!(text, "{} = ['{}']", lens.name(), names.join("', '"));
        }
        if !self.sort.is_empty() {
            text.push_str("[screen.sort]\n");
        }
        for (lens, name) in &self.sort {
            _ = writeln!(text, "{} = '{name}'", lens.name());
        }
        text
    }
}
