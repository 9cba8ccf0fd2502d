//! `report --html`: one self-contained page for a colleague without kvmtop. Findings and the
//! report's tables, and charts over time where the input has intervals.
//!
//! The page holds the document of `report --json` as it is, and the series of its charts. It loads
//! nothing: its Content Security Policy (<https://www.w3.org/TR/CSP3/>) allows the two inline
//! scripts and styles by their hashes and no request at all. Names in it are hostile text: as data
//! in a script element nothing of them is markup, and the scripts only ever set the text of
//! elements.
//!
//! An owner is the host or a guest. It has a chart of each kind of figure, and a chart has lines:
//! a name with a track, its values over time. The intervals of a recording share the slots of one
//! time axis; a track has a cell for each slot. Where memory or the page has no room, neighbouring
//! slots are joined, and the small lines of a chart are added up. A span is the time in which a
//! finding held.

mod charts;
mod page;
mod spans;
mod timeline;
mod tracks;

pub use page::{HtmlPage, page};
pub use timeline::TimelineBuilder;

#[cfg(test)]
mod tests;
