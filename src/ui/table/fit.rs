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
    pub priority: u8,
}

/// A column of text.
pub const fn left(width: u16, grow: u16, priority: u8) -> ColumnLayout {
    ColumnLayout {
        width,
        grow,
        right: false,
        priority,
    }
}

/// A column of figures.
pub const fn right(width: u16, grow: u16, priority: u8) -> ColumnLayout {
    ColumnLayout {
        width,
        grow,
        right: true,
        priority,
    }
}

/// A column that fits: its index, left edge (relative) and width.
pub type Fitted = (usize, u16, u16);

/// Which columns fit into `columns` screen columns with a gap of one. The highest priority numbers
/// are left out first; spare room is shared.
pub fn fit_columns(layouts: &[ColumnLayout], columns: u16) -> Vec<Fitted> {
    let mut kept: Vec<usize> = (0..layouts.len()).collect();
    while needed_width(layouts, &kept) > columns {
        let last = kept
            .iter()
            .enumerate()
            .filter(|(_, i)| layouts[**i].priority > 0);
        // Of equal ones the rightmost is left out.
        let Some((at, _)) = last.max_by_key(|(at, i)| (layouts[**i].priority, *at)) else {
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
    let mut x = 0;
    kept.into_iter()
        .zip(widths)
        .map(|(i, w)| {
            let at = x;
            x += w + 1;
            (i, at, w)
        })
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

    const LAYOUTS: [ColumnLayout; 3] = [left(10, 5, 0), right(5, 0, 2), right(5, 0, 1)];

    #[test]
    fn the_least_important_columns_are_left_out_first() {
        let ids = |w| {
            fit_columns(&LAYOUTS, w)
                .iter()
                .map(|f| f.0)
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
        assert_eq!(
            fit_columns(&LAYOUTS, 24),
            [(0, 0, 12), (1, 13, 5), (2, 19, 5)]
        );
        assert_eq!(fit_columns(&LAYOUTS, 200)[0], (0, 0, 15));
    }
}
