//! Two times A and B, and by how much the table's figures changed from one to the other. Until B is marked, the
//! interval on the screen is B: so A can be marked in a recording, and the change be seen anywhere in it.

use judge::model::GuestId;
use std::collections::HashMap;

/// The table's figures at one time: of each guest by the index of the column, `None` for an unknown figure or a text.
#[derive(Debug, Clone, PartialEq)]
pub struct MarkedFigures {
    /// The time, milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// The figures.
    pub guests: HashMap<GuestId, Vec<Option<f64>>>,
}

impl MarkedFigures {
    fn figure(&self, guest: &GuestId, column: usize) -> Option<f64> {
        *self.guests.get(guest)?.get(column)?
    }
}

/// The marks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableMarks {
    a: Option<MarkedFigures>,
    b: Option<MarkedFigures>,
}

impl TableMarks {
    /// Marks A, then B, then neither.
    pub fn mark(&mut self, now: MarkedFigures) {
        match (&self.a, &self.b) {
            (None, _) => self.a = Some(now),
            (Some(_), None) => self.b = Some(now),
            (Some(_), Some(_)) => *self = Self::default(),
        }
    }

    /// Whether the table shows changes.
    pub fn is_set(&self) -> bool {
        self.a.is_some()
    }

    /// Times of A and B, milliseconds since the Unix epoch; `None` while nothing is marked.
    pub fn times_ms(&self) -> Option<(i64, Option<i64>)> {
        Some((self.a.as_ref()?.time_ms, self.b.as_ref().map(|b| b.time_ms)))
    }

    /// By how much a guest's figure changed from A to B, or to what it is now; `None` where one of them is unknown.
    pub fn change(&self, guest: &GuestId, column: usize, now: Option<f64>) -> Option<f64> {
        let b = self.b.as_ref().map_or(now, |b| b.figure(guest, column));
        Some(b? - self.a.as_ref()?.figure(guest, column)?)
    }
}
