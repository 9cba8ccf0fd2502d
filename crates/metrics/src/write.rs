//! Writes families of metrics; one without a row is left out.

use super::vcpu::buckets;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Unit;
use sample::Timing;
use std::borrow::{Borrow, Cow};
use std::fmt;

/// A family of metrics whose values are found in a `T`.
pub struct Column<T> {
    /// The name without unit and suffix.
    name: &'static str,
    help: &'static str,
    /// What is written in seconds is read as nanoseconds.
    unit: Option<&'static Unit>,
    kind: MetricType,
    value: Value<T>,
}

/// Finds a value; `None` makes no row.
type Value<T> = fn(&T) -> Option<u64>;

const SECONDS: Option<&Unit> = Some(&Unit::Seconds);
const BYTES: Option<&Unit> = Some(&Unit::Bytes);

impl<T> Column<T> {
    /// A counter without a unit.
    pub const fn count(name: &'static str, help: &'static str, value: Value<T>) -> Self {
        Self {
            name,
            help,
            unit: None,
            kind: MetricType::Counter,
            value,
        }
    }

    /// A counter of time.
    pub const fn time(name: &'static str, help: &'static str, value: Value<T>) -> Self {
        Self {
            unit: SECONDS,
            ..Self::count(name, help, value)
        }
    }

    /// A gauge without a unit.
    pub const fn gauge(name: &'static str, help: &'static str, value: Value<T>) -> Self {
        Self {
            kind: MetricType::Gauge,
            ..Self::count(name, help, value)
        }
    }

    /// A gauge of bytes.
    pub const fn size(name: &'static str, help: &'static str, value: Value<T>) -> Self {
        Self {
            unit: BYTES,
            ..Self::gauge(name, help, value)
        }
    }

    /// A length of time, or a point in time since the epoch; nanoseconds.
    pub const fn instant(name: &'static str, help: &'static str, value: Value<T>) -> Self {
        Self {
            unit: SECONDS,
            ..Self::gauge(name, help, value)
        }
    }

    /// Labels without a value.
    pub const fn info(name: &'static str, help: &'static str) -> Self {
        Self {
            kind: MetricType::Info,
            ..Self::count(name, help, |_| Some(1))
        }
    }
}

/// The labels of a row.
#[derive(Debug, Clone, Default)]
pub struct Labels<'a>(Vec<(&'static str, Cow<'a, str>)>);

impl<'a> Labels<'a> {
    /// One more label.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Cow<'a, str>>) -> Self {
        self.0.push((name, value.into()));
        self
    }
}

/// Writes the families of these columns, with the labels and values of each row.
pub fn table<'a, T, R: Borrow<T>>(
    encoder: &mut DescriptorEncoder<'_>,
    columns: &[Column<T>],
    rows: impl IntoIterator<Item = (Labels<'a>, R)>,
) -> fmt::Result {
    let rows: Vec<_> = rows.into_iter().collect();
    for Column {
        name,
        help,
        unit,
        kind,
        value,
    } in columns
    {
        let mut cells = rows
            .iter()
            .filter_map(|(labels, row)| Some((&labels.0, value(row.borrow())?)))
            .peekable();
        if cells.peek().is_none() {
            continue;
        }
        let mut family = encoder.encode_descriptor(name, help, *unit, *kind)?;
        for (labels, value) in cells {
            match kind {
                MetricType::Info => family.encode_info(labels)?,
                _ if labels.is_empty() => write(&mut family, *kind, *unit, value)?,
                _ => write(&mut family.encode_family(labels)?, *kind, *unit, value)?,
            }
        }
    }
    Ok(())
}

/// Writes histograms in seconds.
pub fn histograms<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    rows: impl IntoIterator<Item = (Labels<'a>, &'a Timing)>,
) -> fmt::Result {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, SECONDS, MetricType::Histogram)?;
    rows.try_for_each(|(Labels(labels), durations)| {
        let total = durations.total_ns.unwrap_or(0) as f64 / 1e9;
        let mut row = family.encode_family(&labels)?;
        row.encode_histogram::<NoLabelSet>(total, durations.count, &buckets(durations), None)
    })
}

fn write(
    row: &mut MetricEncoder<'_>,
    kind: MetricType,
    unit: Option<&Unit>,
    value: u64,
) -> fmt::Result {
    const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;
    let seconds = value as f64 / 1e9;
    match (kind, unit) {
        (MetricType::Counter, Some(Unit::Seconds)) => row.encode_counter(&seconds, NO_EXEMPLAR),
        (MetricType::Counter, _) => row.encode_counter(&value, NO_EXEMPLAR),
        (_, Some(Unit::Seconds)) => row.encode_gauge(&seconds),
        _ => row.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX)),
    }
}
