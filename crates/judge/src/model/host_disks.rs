//! What the host's block devices did for a guest within an interval.

use super::earlier::Earlier;
use super::{SampleInterval, since};
use sample::{DomainSample, HostDisk, HostRequests, MissingExtreme, Submitter, Timing};
use std::collections::BTreeMap;

/// A block device of the host, and its work for one guest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostDiskModel {
    /// Its name in the kernel.
    pub name: String,
    /// Its major and minor number.
    pub number: (u32, u32),
    /// The name of a device-mapper device, or the file of a loop device.
    pub alias: Option<String>,
    /// The names of the devices below it.
    pub below: Vec<String>,
    /// Reads.
    pub reads: HostActivity,
    /// Writes with data.
    pub writes: HostActivity,
    /// Flushes of the device's write cache.
    pub flushes: HostActivity,
    /// All other operations, such as discards.
    pub others: HostActivity,
    /// Number of requests by who submitted them.
    pub submitters: BTreeMap<Submitter, u64>,
}

/// Requests of one kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostActivity {
    /// Requests per second; `None` if the interval's length is not known.
    pub ops: Option<f64>,
    /// Bytes.
    pub bytes: u64,
    /// From submission to completion.
    pub total: Timing,
    /// From issue to the driver to completion, where the device has one.
    pub device: Timing,
}

impl HostActivity {
    /// Mean time of a request, microseconds; `None` without requests.
    pub fn mean_us(&self) -> Option<f64> {
        self.total.mean_us()
    }

    fn new(now: &HostRequests, before: Option<&HostRequests>, interval: &SampleInterval) -> Self {
        let total = now.total.since(before.map(|b| &b.total));
        Self {
            ops: interval.rate(total.count),
            bytes: since(now.bytes, before.map(|b| b.bytes)),
            device: now.device.since(before.map(|b| &b.device)),
            total,
        }
    }

    fn add(&mut self, more: &Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.total.merge(&more.total, MissingExtreme::Unknown);
        self.device.merge(&more.device, MissingExtreme::Unknown);
    }
}

impl HostDiskModel {
    /// The devices of a guest; `None` where they are not timed.
    pub(super) fn all(
        now: &DomainSample,
        before: Option<&DomainSample>,
        interval: &SampleInterval,
    ) -> Option<Vec<Self>> {
        let before = before.and_then(|b| b.host_disks.as_deref()).unwrap_or_default();
        let mut before = Earlier::new(before, |disk| disk.number);
        let disks = now.host_disks.as_ref().filter(|_| interval.started)?;
        Some(disks.iter().map(|disk| Self::new(disk, before.find(&disk.number), interval)).collect())
    }

    fn new(now: &HostDisk, before: Option<&HostDisk>, interval: &SampleInterval) -> Self {
        let HostDisk { name, number, alias, below, reads, writes, flushes, others, submitters } = now;
        let grown = |now: &HostRequests, part: fn(&HostDisk) -> &HostRequests| {
            HostActivity::new(now, before.map(part), interval)
        };
        let earlier = |submitter: &Submitter| before.and_then(|b| b.submitters.get(submitter)).copied();
        Self {
            name: name.clone(),
            number: *number,
            alias: alias.clone(),
            below: below.clone(),
            reads: grown(reads, |disk| &disk.reads),
            writes: grown(writes, |disk| &disk.writes),
            flushes: grown(flushes, |disk| &disk.flushes),
            others: grown(others, |disk| &disk.others),
            submitters: submitters.iter().map(|(s, n)| (*s, since(*n, earlier(s)))).filter(|(_, n)| *n > 0).collect(),
        }
    }

    fn kinds(&mut self) -> [&mut HostActivity; 4] {
        [&mut self.reads, &mut self.writes, &mut self.flushes, &mut self.others]
    }

    /// No work of this device yet; [`HostDiskModel::add`] adds it.
    pub(super) fn none_of(number: (u32, u32)) -> Self {
        Self { number, ..Self::default() }
    }

    /// Adds another interval; [`HostDiskModel::finish`] makes rates of the sum.
    pub(super) fn add(&mut self, mut more: Self) {
        for (sum, more) in self.kinds().into_iter().zip(more.kinds()) {
            sum.add(more);
        }
        for (submitter, count) in &more.submitters {
            let sum = self.submitters.entry(*submitter).or_default();
            *sum = sum.saturating_add(*count);
        }
        (self.name, self.alias, self.below) = (more.name, more.alias, more.below);
    }

    pub(super) fn finish(&mut self, seconds: Option<f64>) {
        for kind in self.kinds() {
            kind.ops = seconds.map(|s| kind.total.count as f64 / s);
        }
    }

    /// Mean time of its reads and writes, microseconds: from submission to completion, and the part in the device.
    pub fn mean_us(&self) -> (Option<f64>, Option<f64>) {
        let both = |part: fn(&HostActivity) -> &Timing| {
            let mut both = part(&self.reads).clone();
            both.merge(part(&self.writes), MissingExtreme::Unknown);
            both.mean_us()
        };
        (both(|kind| &kind.total), both(|kind| &kind.device))
    }

    /// 99th percentile of its reads and writes, from submission to completion, microseconds.
    pub fn p99_us(&self) -> Option<f64> {
        let mut both = self.reads.total.clone();
        both.merge(&self.writes.total, MissingExtreme::Unknown);
        both.quantile_us(0.99)
    }

    /// Reads and writes per second.
    pub fn ops(&self) -> f64 {
        self.reads.ops.unwrap_or(0.0) + self.writes.ops.unwrap_or(0.0)
    }

    /// Who submitted requests of it, by how many they were.
    pub fn submitted_most(&self) -> Option<(Submitter, f64)> {
        let all = super::total(self.submitters.values().copied());
        let (submitter, most) = self.submitters.iter().max_by_key(|(_, n)| **n)?;
        (all > 0).then(|| (*submitter, 100.0 * *most as f64 / all as f64))
    }
}

/// The devices that the guest's threads themselves address: a request to one with devices below it is seen again there.
pub fn addressed(disks: &[HostDiskModel]) -> impl Iterator<Item = &HostDiskModel> {
    disks.iter().filter(|disk| !disks.iter().any(|upper| upper.below.contains(&disk.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Base, Model};
    use sample::Sample;

    fn sample(mono_s: u64, reads: u64, each_ns: u64) -> Sample {
        let mut disk =
            HostDisk { number: (8, 0), submitters: [(Submitter::Pool, reads)].into(), ..HostDisk::default() };
        (0..reads).for_each(|_| disk.reads.total.add(each_ns));
        disk.reads.bytes = reads * 4096;
        let domain = DomainSample { host_disks: Some(vec![disk]), ..DomainSample::default() };
        Sample { mono_ns: mono_s * 1_000_000_000, domains: vec![domain], ..Sample::default() }
    }

    #[test]
    fn figures_are_those_of_the_interval() {
        let (a, b) = (sample(1, 10, 1_000_000), sample(3, 30, 1_000_000));
        let model = Model::new(&b, Base::Previous(&a));
        let disk = &model.domains[0].host_disks.as_ref().unwrap()[0];
        assert_eq!((disk.reads.ops, disk.reads.bytes, disk.reads.mean_us()), (Some(10.0), 20 * 4096, Some(1000.0)));
        assert_eq!(disk.submitted_most(), Some((Submitter::Pool, 100.0)));
        assert_eq!((disk.writes.mean_us(), disk.reads.device.mean_us()), (None, None));
        // Timing stopped and began again.
        let model = Model::new(&sample(4, 5, 1), Base::Previous(&b));
        assert_eq!(model.domains[0].host_disks.as_ref().unwrap()[0].reads.total.count, 5);
        assert!(Model::new(&b, Base::Start).domains[0].host_disks.is_none());
        let mut sum = crate::model::ModelSum::default();
        sum.add(Model::new(&b, Base::Previous(&a)));
        sum.add(Model::new(&sample(4, 60, 1_000_000), Base::Previous(&b)));
        let model = sum.finish();
        let disk = &model.domains[0].host_disks.as_ref().unwrap()[0];
        assert_eq!((disk.reads.total.count, disk.reads.ops.map(f64::round)), (50, Some(17.0)));
    }
}
