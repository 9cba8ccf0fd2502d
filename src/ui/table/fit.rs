//! Which columns fit. Widths are fixed, so a figure that grows moves nothing.

use super::registry::ColumnId;

/// How a column is laid out.
#[derive(Debug, Clone, Copy)]
pub struct ColumnLayout {
    /// Smallest width.
    pub width: u16,
    /// How many columns it may take beyond that where there is room.
    pub grow: u16,
    /// Whether its text is aligned to the right.
    pub right: bool,
    /// When room is short, the highest is left out first; 0 always stays.
    pub drop_order: u8,
}

/// A column of text.
pub const fn left(width: u16) -> ColumnLayout {
    ColumnLayout {
        width,
        grow: 0,
        right: false,
        drop_order: 0,
    }
}

/// A column of figures.
pub const fn right(width: u16) -> ColumnLayout {
    ColumnLayout {
        right: true,
        ..left(width)
    }
}

impl ColumnLayout {
    /// Lets it take so many more columns where there is room.
    pub const fn grow(self, grow: u16) -> Self {
        Self { grow, ..self }
    }

    /// Lets it be left out when room is short, the highest order first.
    pub const fn drop_order(self, drop_order: u8) -> Self {
        Self { drop_order, ..self }
    }
}

/// A column that is painted.
#[derive(Debug, Clone, Copy)]
pub struct PaintedColumn {
    /// Its place in its table.
    pub id: ColumnId,
    /// Header.
    pub header: &'static str,
    /// How it is laid out; the width is the one that it has.
    pub layout: ColumnLayout,
}

/// Leaves out columns that do not fit into `width` with a gap of one, the highest drop orders first,
/// and shares spare room.
pub fn fit_columns(columns: &mut Vec<PaintedColumn>, width: u16) {
    while needed_width(columns) > width {
        let ordered = columns.iter().map(|column| column.layout.drop_order);
        // Of equal ones the rightmost is left out.
        let last = ordered.enumerate().max_by_key(|(_, order)| *order);
        match last {
            Some((at, 1..)) => columns.remove(at),
            _ => break,
        };
    }
    let mut room = width.saturating_sub(needed_width(columns));
    while room > 0 && columns.iter().any(|column| column.layout.grow > 0) {
        for layout in columns.iter_mut().map(|column| &mut column.layout) {
            if room > 0 && layout.grow > 0 {
                layout.grow -= 1;
                layout.width += 1;
                room -= 1;
            }
        }
    }
}

/// The smallest width of these columns with a gap of one.
fn needed_width(columns: &[PaintedColumn]) -> u16 {
    let widths: u16 = columns.iter().map(|column| column.layout.width).sum();
    widths + columns.len().saturating_sub(1) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUTS: [ColumnLayout; 3] = [
        left(10).grow(5),
        right(5).drop_order(2),
        right(5).drop_order(1),
    ];

    fn fitted(width: u16) -> Vec<PaintedColumn> {
        let columns = LAYOUTS.into_iter().enumerate();
        let columns = columns.map(|(id, layout)| PaintedColumn {
            id: ColumnId(id),
            header: "",
            layout,
        });
        let mut columns = columns.collect();
        fit_columns(&mut columns, width);
        columns
    }

    #[test]
    fn the_least_important_columns_are_left_out_first() {
        let ids = |w| fitted(w).iter().map(|f| f.id.0).collect::<Vec<_>>();
        assert_eq!(ids(80), [0, 1, 2]);
        assert_eq!(ids(22), [0, 1, 2]);
        assert_eq!(ids(21), [0, 2]);
        assert_eq!(ids(12), [0]);
        assert_eq!(ids(3), [0]);
    }

    #[test]
    fn spare_room_goes_to_what_can_grow() {
        let widths = fitted(24).into_iter().map(|f| f.layout.width);
        assert_eq!(widths.collect::<Vec<_>>(), [12, 5, 5]);
        assert_eq!(fitted(200)[0].layout.width, 15);
    }
}
