//! Which columns fit. Widths are fixed, so a figure that grows moves nothing.

/// How a column is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// A column that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fitted {
    /// Its place in the list of columns.
    pub index: usize,
    /// Its width.
    pub width: u16,
}

/// Which columns fit into `columns` screen columns with a gap of one. The highest drop orders go
/// first; spare room is shared.
pub fn fit_columns(layouts: &[ColumnLayout], columns: u16) -> Vec<Fitted> {
    let mut kept: Vec<usize> = (0..layouts.len()).collect();
    while needed_width(layouts, &kept) > columns {
        let last = kept
            .iter()
            .enumerate()
            .filter(|(_, i)| layouts[**i].drop_order > 0);
        // Of equal ones the rightmost is left out.
        let Some((at, _)) = last.max_by_key(|(at, i)| (layouts[**i].drop_order, *at)) else {
            break;
        };
        kept.remove(at);
    }
    let mut room = columns.saturating_sub(needed_width(layouts, &kept));
    let mut widths: Vec<u16> = kept.iter().map(|&i| layouts[i].width).collect();
    let mut grew = true;
    while room > 0 && grew {
        grew = false;
        for (w, &i) in widths.iter_mut().zip(&kept) {
            if room > 0 && *w < layouts[i].width + layouts[i].grow {
                *w += 1;
                room -= 1;
                grew = true;
            }
        }
    }
    let fitted = kept.into_iter().zip(widths);
    fitted
        .map(|(index, width)| Fitted { index, width })
        .collect()
}

/// The smallest width of these columns with a gap of one.
fn needed_width(layouts: &[ColumnLayout], kept: &[usize]) -> u16 {
    let widths: u16 = kept.iter().map(|&i| layouts[i].width).sum();
    widths + kept.len().saturating_sub(1) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUTS: [ColumnLayout; 3] = [
        left(10).grow(5),
        right(5).drop_order(2),
        right(5).drop_order(1),
    ];

    #[test]
    fn the_least_important_columns_are_left_out_first() {
        let ids = |w| {
            fit_columns(&LAYOUTS, w)
                .iter()
                .map(|f| f.index)
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(80), [0, 1, 2]);
        assert_eq!(ids(22), [0, 1, 2]);
        assert_eq!(ids(21), [0, 2]);
        assert_eq!(ids(12), [0]);
        assert_eq!(ids(3), [0]);
    }

    #[test]
    fn spare_room_goes_to_what_can_grow() {
        let widths = fit_columns(&LAYOUTS, 24).into_iter().map(|f| f.width);
        assert_eq!(widths.collect::<Vec<_>>(), [12, 5, 5]);
        assert_eq!(fit_columns(&LAYOUTS, 200)[0].width, 15);
    }
}
