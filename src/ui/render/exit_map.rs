//! The exits of one guest by reason and vCPU, or of all guests by guest and reason, as shades with figures.

use crate::ui::cells::userspace_name;
use crate::ui::draw::put;
use crate::ui::order;
use crate::ui::state::AppState;
use crate::ui::text::{clean, fit, width};
use crate::ui::theme::{Look, Theme};
use crate::ui::view::{ExitSpan, ScreenView};
use judge::figures::{micros, rate};
use judge::model::{DomainModel, ExitRow, ExitTable};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::collections::BTreeMap;

/// Reasons at most where they are columns.
const MAX_REASONS: usize = 24;
/// Width of a row's name.
const NAME: u16 = 16;
/// Width of a cell with a figure.
const FIGURE: u16 = 7;
/// Width of a cell with a figure below the name of a reason.
const REASON: u16 = 12;
/// Width of a cell with a shade only.
const SHADE: u16 = 3;

/// Rows and columns of figures.
pub struct ExitMap {
    /// The names of the columns; the first column has the sums.
    heads: Vec<String>,
    /// Name of a row, whether the guest sleeps in it, and its figures.
    rows: Vec<(String, bool, Vec<f64>)>,
    /// How a figure is printed.
    print: fn(f64) -> String,
    /// What a figure is.
    pub unit: &'static str,
    /// Whether the columns are reasons.
    by_guest: bool,
}

/// How exits are counted.
#[derive(Debug, Clone, Copy)]
struct ExitMeasure {
    time: bool,
    span: ExitSpan,
    with_sleep: bool,
    /// Length of the time counted, seconds.
    seconds: f64,
}

impl ExitMeasure {
    /// Count, microseconds or percent, after the view's choice.
    fn value(&self, row: &ExitRow) -> f64 {
        let per_second = self.span == ExitSpan::Second;
        match (self.time, row.span.total_ns) {
            (false, _) if per_second => row.span.count as f64 / self.seconds,
            (false, _) => row.span.count as f64,
            (true, ns) if per_second => ns.unwrap_or(0) as f64 / (self.seconds * 1e7),
            (true, ns) => ns.unwrap_or(0) as f64 / 1e3,
        }
    }

    fn unit(&self) -> &'static str {
        match (self.time, self.span) {
            (false, ExitSpan::Second) => "exits/s",
            (false, ExitSpan::Interval) => "exits in this interval",
            (false, ExitSpan::Start) => "exits since the start",
            (true, ExitSpan::Second) => "% of one CPU",
            (true, ExitSpan::Interval) => "us in this interval",
            (true, ExitSpan::Start) => "us since the start",
        }
    }

    fn print(&self) -> fn(f64) -> String {
        match (self.time, self.span) {
            (false, _) | (true, ExitSpan::Second) => rate,
            (true, _) => micros,
        }
    }
}

/// The exits of the guest and of each vCPU over the time of the view, and its length in seconds.
pub fn tables<'a>(state: &'a AppState, d: &'a DomainModel) -> (&'a ExitTable, Vec<(u32, &'a ExitTable)>, Option<f64>) {
    let past = state.history.exits(d).filter(|_| state.view.exits.span == ExitSpan::Start);
    match past {
        Some(past) => (&past.all, past.vcpus.iter().map(|(v, t)| (*v, t)).collect(), Some(past.seconds)),
        None => {
            let seconds = state.model.as_ref().and_then(|m| m.interval_s);
            (&d.exits, d.vcpu_exits.iter().map(|(v, t)| (*v, t)).collect(), seconds)
        }
    }
}

/// The map of the view; `None` if there is nothing in it.
pub fn map(state: &AppState) -> Option<ExitMap> {
    let by_time = state.view.order_of(ScreenView::Exits) == order::TIME;
    let guests = state.guests_in_view();
    let timed = guests.iter().any(|d| d.exits.total_ns.is_some());
    let measure = ExitMeasure {
        time: by_time && timed,
        span: state.view.exits.span,
        with_sleep: state.view.exits.with_sleep,
        seconds: 1.0,
    };
    let map = if state.view.is_of_all() {
        by_guest(state, &guests, measure)
    } else {
        let d = *guests.first()?;
        if d.exits.rows.is_empty() { to_vmm(state, d) } else { by_vcpu(state, d, measure) }
    };
    Some(map).filter(|m| !m.rows.is_empty() && m.heads.len() > 1)
}

fn by_vcpu(state: &AppState, d: &DomainModel, measure: ExitMeasure) -> ExitMap {
    let (all, vcpus, seconds) = tables(state, d);
    let measure = ExitMeasure { seconds: seconds.unwrap_or(1.0), ..measure };
    let mut rows: Vec<_> = all
        .rows
        .iter()
        .filter(|r| measure.with_sleep || !r.idle)
        .map(|r| {
            let of = |t: &ExitTable| t.row(&r.reason).map_or(0.0, |r| measure.value(r));
            let figures = std::iter::once(measure.value(r)).chain(vcpus.iter().map(|(_, t)| of(t)));
            (clean(&r.reason), r.idle, figures.collect::<Vec<_>>())
        })
        .collect();
    rows.sort_by(|a, b| (a.1.cmp(&b.1)).then(b.2[0].total_cmp(&a.2[0])));
    let heads = std::iter::once("ALL".into()).chain(vcpus.iter().map(|(v, _)| v.to_string())).collect();
    ExitMap { heads, rows, print: measure.print(), unit: measure.unit(), by_guest: false }
}

/// Exits to the VMM, where the kernel fires no `kvm_exit`.
fn to_vmm(state: &AppState, d: &DomainModel) -> ExitMap {
    let seconds = state.model.as_ref().and_then(|m| m.interval_s).unwrap_or(1.0);
    let per_second = state.view.exits.span == ExitSpan::Second;
    let figure = |n: u64| if per_second { n as f64 / seconds } else { n as f64 };
    let vcpus: Vec<u32> = d.vcpus().filter_map(|t| t.index).collect();
    let mut sums: BTreeMap<i32, Vec<f64>> = BTreeMap::new();
    for (vcpu, reason, n) in &d.userspace {
        let column = match vcpu {
            None => Some(0),
            Some(v) => vcpus.iter().position(|known| known == v).map(|at| at + 1),
        };
        let row = sums.entry(*reason).or_insert_with(|| vec![0.0; vcpus.len() + 1]);
        if let Some(cell) = column.and_then(|at| row.get_mut(at)) {
            *cell += figure(*n);
        }
    }
    let name = |reason: i32| userspace_name(reason).replace("KVM_EXIT_", "to VMM: ");
    let mut rows: Vec<_> = sums.into_iter().map(|(reason, figures)| (name(reason), false, figures)).collect();
    rows.sort_by(|a, b| b.2[0].total_cmp(&a.2[0]));
    let heads = std::iter::once("ALL".into()).chain(vcpus.iter().map(ToString::to_string)).collect();
    let unit = if per_second { "exits to the VMM/s" } else { "exits to the VMM in this interval" };
    ExitMap { heads, rows, print: rate, unit, by_guest: false }
}

fn by_guest(state: &AppState, guests: &[&DomainModel], measure: ExitMeasure) -> ExitMap {
    let mut measure = measure;
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    let mut of_guests = Vec::new();
    for d in guests {
        let (table, _, seconds) = tables(state, d);
        measure.seconds = seconds.unwrap_or(1.0);
        let mut figures: BTreeMap<&str, f64> = BTreeMap::new();
        for row in table.rows.iter().filter(|r| measure.with_sleep || !r.idle) {
            *figures.entry(&row.reason).or_default() += measure.value(row);
            *sums.entry(&row.reason).or_default() += measure.value(row);
        }
        of_guests.push((d, figures));
    }
    let mut reasons: Vec<(&str, f64)> = sums.into_iter().collect();
    reasons.sort_by(|a, b| b.1.total_cmp(&a.1));
    reasons.truncate(MAX_REASONS);
    let row = |(d, figures): (&&DomainModel, BTreeMap<&str, f64>)| {
        let all = figures.values().sum();
        let of = reasons.iter().map(|(reason, _)| figures.get(reason).copied().unwrap_or(0.0));
        (clean(d.name()), false, std::iter::once(all).chain(of).collect())
    };
    let rows = of_guests.into_iter().map(row).collect();
    let heads = std::iter::once("ALL".into()).chain(reasons.iter().map(|(r, _)| clean(r))).collect();
    ExitMap { heads, rows, print: measure.print(), unit: measure.unit(), by_guest: true }
}

impl ExitMap {
    /// How many lines it has with its header.
    pub fn lines(&self) -> u16 {
        u16::try_from(self.rows.len()).unwrap_or(u16::MAX).saturating_add(1)
    }

    /// Paints as many rows and columns as there is room for. A guest with more vCPUs than columns has several in each.
    pub fn paint(&self, buf: &mut Buffer, area: Rect, theme: &Theme) {
        let figure = if self.by_guest { REASON } else { FIGURE };
        let longest = self.rows.iter().map(|(text, ..)| width(text)).max().unwrap_or(0);
        let name = longest.min(area.width / 4).max(NAME).min(area.width / 2);
        let room = area.width.saturating_sub(name + 2 + FIGURE);
        let columns = self.heads.len() as u16 - 1;
        let each = match () {
            () if self.by_guest || figure * columns <= room => figure,
            () if SHADE * columns <= room => SHADE,
            () => 1,
        };
        let shown = usize::from(room / each).min(self.heads.len() - 1);
        let group = if self.by_guest { 1 } else { (self.heads.len() - 1).div_ceil(shown.max(1)) };
        let at = |column: usize| area.x + name + 2 + FIGURE + column as u16 * each;
        let head = |x: u16, text: &str, w: u16, buf: &mut Buffer| {
            let text = fit(text, w.saturating_sub(1).max(1), theme.glyphs.cut);
            put(buf, x + w - width(&text).min(w), area.y, &text, w, theme.style(Look::Head));
        };
        head(area.x + name + 1, &self.heads[0], FIGURE, buf);
        let rows = if self.by_guest { "GUEST" } else { "REASON \\ vCPU" };
        put(buf, area.x, area.y, rows, name, theme.style(Look::Head));
        let top = self.rows.iter().flat_map(|(_, _, f)| &f[1..]).fold(0.0_f64, |a, b| a.max(*b));
        for (line, (text, idle, figures)) in
            self.rows.iter().take(usize::from(area.height).saturating_sub(1)).enumerate()
        {
            let y = area.y + 1 + line as u16;
            let look = if *idle { Look::Dim } else { Look::Text };
            put(buf, area.x, y, &fit(text, name, theme.glyphs.cut), name, theme.style(look));
            let sum = (self.print)(figures[0]);
            put(buf, area.x + name + FIGURE - width(&sum).min(FIGURE), y, &sum, FIGURE, theme.style(look));
            for (column, cell) in figures[1..].chunks(group).take(shown).enumerate() {
                let value = cell.iter().copied().fold(0.0, f64::max);
                self.cell(buf, (at(column), y, each), value, top, *idle, theme);
            }
        }
        for column in 0..shown {
            let text = self.heads.get(1 + column * group).map_or("", String::as_str);
            match each {
                1 if (column * group) % 10 == 0 => put(buf, at(column), area.y, text, 4, theme.style(Look::Head)),
                1 => {}
                w => head(at(column), text, w, buf),
            }
        }
    }

    fn cell(&self, buf: &mut Buffer, (x, y, w): (u16, u16, u16), value: f64, top: f64, idle: bool, theme: &Theme) {
        if value <= 0.0 || top <= 0.0 {
            put(buf, x + w - 1, y, &theme.glyphs.dot.to_string(), 1, theme.style(Look::Dim));
            return;
        }
        let share = (value / top).sqrt();
        let shade = theme.shade(share).to_string();
        let look = if idle { Look::Dim } else { Look::Info };
        let shades = if w > SHADE { 1 } else { w.saturating_sub(1).max(1) };
        put(buf, x + u16::from(w > 1), y, &shade.repeat(shades.into()), shades, theme.style(look));
        if w > SHADE {
            let text = (self.print)(value);
            let look = if idle || share < 0.1 {
                Look::Dim
            } else if share > 0.7 {
                Look::Strong
            } else {
                Look::Text
            };
            put(buf, x + w - width(&text).min(w - 2), y, &text, w - 2, theme.style(look));
        }
    }
}
