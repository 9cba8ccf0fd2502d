//! Writes families of metrics; one without a row is left out.

use super::vcpu::DurationHistogram;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Unit;
use std::fmt;

/// A row's value.
#[derive(Debug, Clone, Copy)]
pub enum RowValue<'a> {
    /// A count, a size, a state.
    Whole(u64),
    /// Nanoseconds, written as seconds.
    Nanoseconds(u64),
    /// Durations.
    Durations(&'a DurationHistogram),
}

/// What a family is: its name without unit and suffix, and its line of help.
#[derive(Debug, Clone, Copy)]
pub struct MetricFamily<'a> {
    name: &'a str,
    help: &'a str,
    unit: Option<&'a Unit>,
    kind: MetricType,
}

impl<'a> MetricFamily<'a> {
    const fn new(name: &'a str, help: &'a str, kind: MetricType) -> Self {
        Self { name, help, unit: None, kind }
    }

    /// A counter, whose name ends in `_total` when it is written.
    pub const fn counter(name: &'a str, help: &'a str) -> Self {
        Self::new(name, help, MetricType::Counter)
    }

    /// A value that goes up and down.
    pub const fn gauge(name: &'a str, help: &'a str) -> Self {
        Self::new(name, help, MetricType::Gauge)
    }

    /// Durations in buckets.
    pub const fn histogram(name: &'a str, help: &'a str) -> Self {
        Self::new(name, help, MetricType::Histogram).seconds()
    }

    /// Labels without a value; the name ends in `_info` when it is written.
    pub const fn info(name: &'a str, help: &'a str) -> Self {
        Self::new(name, help, MetricType::Info)
    }

    /// In seconds, which the name says when it is written.
    pub const fn seconds(self) -> Self {
        Self { unit: Some(&Unit::Seconds), ..self }
    }

    /// In bytes, which the name says when it is written.
    pub const fn bytes(self) -> Self {
        Self { unit: Some(&Unit::Bytes), ..self }
    }
}

/// Labels of a row with their values.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// The rows of a family.
#[derive(Debug)]
pub struct Rows<'e, 'd> {
    family: MetricFamily<'e>,
    /// Until the first row.
    waiting: Option<&'e mut DescriptorEncoder<'d>>,
    begun: Option<MetricEncoder<'e>>,
}

impl<'e, 'd> Rows<'e, 'd> {
    /// No row yet.
    pub fn of(encoder: &'e mut DescriptorEncoder<'d>, family: MetricFamily<'e>) -> Self {
        Self { family, waiting: Some(encoder), begun: None }
    }

    /// Writes a row.
    pub fn add(&mut self, labels: Labels<'_>, value: RowValue<'_>) -> fmt::Result {
        if let Some(encoder) = self.waiting.take() {
            let MetricFamily { name, help, unit, kind } = self.family;
            self.begun = Some(encoder.encode_descriptor(name, help, unit, kind)?);
        }
        let Some(family) = &mut self.begun else { return Err(fmt::Error) };
        match self.family.kind {
            MetricType::Info => family.encode_info(&labels),
            kind if labels.is_empty() => write(family, kind, value),
            kind => write(&mut family.encode_family(&labels)?, kind, value),
        }
    }

    /// Writes a row whose value is known.
    pub fn add_known(&mut self, labels: Labels<'_>, value: Option<RowValue<'_>>) -> fmt::Result {
        value.map_or(Ok(()), |value| self.add(labels, value))
    }
}

type NoLabels<'a> = Labels<'a>;
type NoExemplar<'a> = Option<&'a Exemplar<NoLabels<'a>, f64>>;

fn write(row: &mut MetricEncoder<'_>, kind: MetricType, value: RowValue<'_>) -> fmt::Result {
    let none: NoExemplar<'_> = None;
    match (kind, value) {
        (MetricType::Counter, RowValue::Whole(n)) => row.encode_counter(&n, none),
        (MetricType::Counter, RowValue::Nanoseconds(ns)) => row.encode_counter(&(ns as f64 / 1e9), none),
        (_, RowValue::Whole(n)) => row.encode_gauge(&i64::try_from(n).unwrap_or(i64::MAX)),
        (_, RowValue::Nanoseconds(ns)) => row.encode_gauge(&(ns as f64 / 1e9)),
        (_, RowValue::Durations(d)) => {
            row.encode_histogram::<NoLabels<'_>>(d.total_ns as f64 / 1e9, d.count, &d.buckets(), None)
        }
    }
}
