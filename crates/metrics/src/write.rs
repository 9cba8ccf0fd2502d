//! Writes families of metrics; one without a row is left out.

use super::ranked::add_known;
use super::vcpu::DurationHistogram;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Unit;
use std::fmt;

/// A family of metrics: its name without unit and suffix, and its line of help.
#[derive(Debug, Clone, Copy)]
pub struct MetricFamily {
    name: &'static str,
    help: &'static str,
    unit: Option<&'static Unit>,
    kind: MetricType,
}

impl MetricFamily {
    const fn new(name: &'static str, help: &'static str, kind: MetricType) -> Self {
        Self { name, help, unit: None, kind }
    }

    /// A counter, whose name ends in `_total` when it is written.
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self::new(name, help, MetricType::Counter)
    }

    /// A value that goes up and down.
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::new(name, help, MetricType::Gauge)
    }

    /// Durations in buckets.
    pub const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self::new(name, help, MetricType::Histogram).seconds()
    }

    /// Labels without a value; the name ends in `_info` when it is written.
    pub const fn info(name: &'static str, help: &'static str) -> Self {
        Self::new(name, help, MetricType::Info)
    }

    /// In seconds, which the name says when it is written. Values are nanoseconds.
    pub const fn seconds(self) -> Self {
        Self { unit: Some(&Unit::Seconds), ..self }
    }

    /// In bytes, which the name says when it is written.
    pub const fn bytes(self) -> Self {
        Self { unit: Some(&Unit::Bytes), ..self }
    }
}

/// A family whose values are found in a `T`.
#[derive(Debug)]
pub struct Column<T> {
    family: MetricFamily,
    value: fn(&T) -> Option<u64>,
}

impl<T> Column<T> {
    /// A column of this family; `None` makes no row.
    pub const fn new(family: MetricFamily, value: fn(&T) -> Option<u64>) -> Self {
        Self { family, value }
    }

    /// A counter without a unit.
    pub const fn count(name: &'static str, help: &'static str, value: fn(&T) -> Option<u64>) -> Self {
        Self::new(MetricFamily::counter(name, help), value)
    }

    /// A counter of time.
    pub const fn time(name: &'static str, help: &'static str, value: fn(&T) -> Option<u64>) -> Self {
        Self::new(MetricFamily::counter(name, help).seconds(), value)
    }

    /// A counter of bytes.
    pub const fn bytes(name: &'static str, help: &'static str, value: fn(&T) -> Option<u64>) -> Self {
        Self::new(MetricFamily::counter(name, help).bytes(), value)
    }

    /// A gauge without a unit.
    pub const fn gauge(name: &'static str, help: &'static str, value: fn(&T) -> Option<u64>) -> Self {
        Self::new(MetricFamily::gauge(name, help), value)
    }

    /// A gauge of bytes.
    pub const fn size(name: &'static str, help: &'static str, value: fn(&T) -> Option<u64>) -> Self {
        Self::new(MetricFamily::gauge(name, help).bytes(), value)
    }

    /// A point in time, nanoseconds since the epoch.
    pub const fn instant(name: &'static str, help: &'static str, value: fn(&T) -> Option<u64>) -> Self {
        Self::new(MetricFamily::gauge(name, help).seconds(), value)
    }
}

/// Sums of a table's columns; `None` where nothing known was added.
#[derive(Debug, Clone, Default)]
pub struct Sums(Vec<Option<u64>>);

impl Sums {
    /// Adds what grew.
    pub fn add<T>(&mut self, columns: &[Column<T>], grown: &T) {
        self.0.resize(columns.len(), None);
        for (sum, column) in self.0.iter_mut().zip(columns) {
            add_known(sum, (column.value)(grown));
        }
    }
}

/// Labels of a row with their values.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// Writes the row of an item.
pub type WriteRow<'a, T> = &'a mut dyn FnMut(Labels<'_>, &T) -> fmt::Result;

/// Writes a table: a family for each column, a row for each item that `each` passes on.
pub fn table<T>(
    encoder: &mut DescriptorEncoder<'_>,
    columns: &[Column<T>],
    each: impl Fn(WriteRow<'_, T>) -> fmt::Result,
) -> fmt::Result {
    columns.iter().try_for_each(|column| {
        let mut rows = Rows::new(encoder, column.family);
        each(&mut |labels, item| rows.add_known(labels, (column.value)(item)))
    })
}

/// Writes a table of sums.
pub fn table_of_sums<T>(
    encoder: &mut DescriptorEncoder<'_>,
    columns: &[Column<T>],
    each: impl Fn(WriteRow<'_, Sums>) -> fmt::Result,
) -> fmt::Result {
    columns.iter().enumerate().try_for_each(|(n, column)| {
        let mut rows = Rows::new(encoder, column.family);
        each(&mut |labels, sums| rows.add_known(labels, sums.0.get(n).copied().flatten()))
    })
}

/// The rows of a family.
#[derive(Debug)]
pub struct Rows<'e, 'd> {
    family: MetricFamily,
    /// The encoder until the first row.
    waiting: Option<&'e mut DescriptorEncoder<'d>>,
    started: Option<MetricEncoder<'e>>,
}

impl<'e, 'd> Rows<'e, 'd> {
    /// A family without a row yet.
    pub fn new(encoder: &'e mut DescriptorEncoder<'d>, family: MetricFamily) -> Self {
        Self { family, waiting: Some(encoder), started: None }
    }

    fn encoder(&mut self) -> Result<&mut MetricEncoder<'e>, fmt::Error> {
        if let Some(encoder) = self.waiting.take() {
            let MetricFamily { name, help, unit, kind } = self.family;
            self.started = Some(encoder.encode_descriptor(name, help, unit, kind)?);
        }
        self.started.as_mut().ok_or(fmt::Error)
    }

    /// Writes a row.
    pub fn add(&mut self, labels: Labels<'_>, value: u64) -> fmt::Result {
        let MetricFamily { kind, unit, .. } = self.family;
        let family = self.encoder()?;
        match kind {
            MetricType::Info => family.encode_info(&labels),
            kind if labels.is_empty() => write(family, kind, unit, value),
            kind => write(&mut family.encode_family(&labels)?, kind, unit, value),
        }
    }

    /// Writes a row whose value is known.
    pub fn add_known(&mut self, labels: Labels<'_>, value: Option<u64>) -> fmt::Result {
        value.map_or(Ok(()), |value| self.add(labels, value))
    }

    /// Writes a row of durations.
    pub fn add_durations(&mut self, labels: Labels<'_>, durations: &DurationHistogram) -> fmt::Result {
        let mut row = self.encoder()?.encode_family(&labels)?;
        let total = durations.total_ns as f64 / 1e9;
        row.encode_histogram::<Labels<'_>>(total, durations.count, &durations.buckets(), None)
    }
}

fn write(row: &mut MetricEncoder<'_>, kind: MetricType, unit: Option<&Unit>, value: u64) -> fmt::Result {
    type NoExemplar<'a> = Option<&'a Exemplar<Labels<'a>, f64>>;
    let none: NoExemplar<'_> = None;
    let seconds = value as f64 / 1e9;
    match (kind, unit) {
        (MetricType::Counter, Some(Unit::Seconds)) => row.encode_counter(&seconds, none),
        (MetricType::Counter, _) => row.encode_counter(&value, none),
        (_, Some(Unit::Seconds)) => row.encode_gauge(&seconds),
        _ => row.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX)),
    }
}
