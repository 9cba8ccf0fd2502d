//! `report --html`: one self-contained page for a colleague without kvmtop. Findings and the
//! report's tables, and charts over time where the input has intervals.
//!
//! The page holds the document of `report --json` as it is, and the series of its charts. It loads
//! nothing: its Content Security Policy (<https://www.w3.org/TR/CSP3/>) allows the two inline
//! scripts and styles by their hashes and no request at all. Names in it are hostile text: as data
//! in a script element nothing of them is markup, and the scripts only ever set the text of
//! elements.

mod charts;
mod page;
mod spans;
mod timeline;
mod tracks;

pub use page::{HtmlPage, page};
pub use timeline::TimelineBuilder;

#[cfg(test)]
mod tests;
