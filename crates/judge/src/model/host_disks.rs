//! What the host's block devices did for a guest within an interval.

use super::share;
use super::traced::Traced;
use sample::{HostDisk, ThreadKind};

/// A block device of the host, and its work for one guest.
pub type HostDiskModel = Traced<HostDisk>;

impl HostDiskModel {
    /// Mean time of its reads and writes from submission to completion, microseconds.
    pub fn mean_us(&self) -> Option<f64> {
        self.reads.total.plus(&self.writes.total).mean_us()
    }

    /// The part of [`Self::mean_us`] in the device itself.
    pub fn device_mean_us(&self) -> Option<f64> {
        self.reads.device.plus(&self.writes.device).mean_us()
    }

    /// 99th percentile of its reads and writes, from submission to completion, microseconds; `None`
    /// for fewer than 100.
    pub fn p99_us(&self) -> Option<f64> {
        let both = self.reads.total.plus(&self.writes.total);
        if both.count < 100 {
            return None;
        }
        both.quantile_us(0.99)
    }

    /// Reads and writes per second.
    pub fn ops(&self) -> f64 {
        [&self.reads, &self.writes]
            .into_iter()
            .filter_map(|kind| self.rate_of(kind.total.count))
            .sum()
    }

    /// Who submitted requests of it, by how many they were.
    pub fn submitted_most(&self) -> Option<(ThreadKind, f64)> {
        let all = super::total(self.submitters.values().copied());
        let (submitter, most) = self.submitters.iter().max_by_key(|(_, n)| **n)?;
        Some((*submitter, share(*most, all)?))
    }
}

/// The devices that the guest's threads themselves address: a request to one with devices below it
/// is seen again there.
pub fn addressed(disks: &[HostDiskModel]) -> impl Iterator<Item = &HostDiskModel> {
    disks
        .iter()
        .filter(|disk| !disks.iter().any(|upper| upper.below.contains(&disk.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Base, Model};
    use sample::{DomainSample, Sample};

    fn sample(mono_s: u64, reads: u64, each_ns: u64) -> Sample {
        let mut disk = HostDisk {
            number: (8, 0),
            submitters: [(ThreadKind::Pool, reads)].into(),
            ..HostDisk::default()
        };
        (0..reads).for_each(|_| disk.reads.total.add(each_ns));
        disk.reads.bytes = reads * 4096;
        let domain = DomainSample {
            host_disks: Some(vec![disk]),
            ..DomainSample::default()
        };
        Sample {
            mono_ns: mono_s * 1_000_000_000,
            domains: vec![domain],
            ..Sample::default()
        }
    }

    #[test]
    fn figures_are_those_of_the_interval() {
        let (a, b) = (sample(1, 10, 1_000_000), sample(3, 30, 1_000_000));
        let model = Model::new(&b, Base::Previous(&a));
        let disk = &model.domains[0].host_disks.as_ref().unwrap()[0];
        assert_eq!(
            (
                disk.rate_of(disk.reads.total.count),
                disk.reads.bytes,
                disk.reads.total.mean_us()
            ),
            (Some(10.0), 20 * 4096, Some(1000.0))
        );
        assert_eq!(disk.submitted_most(), Some((ThreadKind::Pool, 100.0)));
        assert_eq!(
            (disk.writes.total.mean_us(), disk.reads.device.mean_us()),
            (None, None)
        );
        // Timing stopped and began again.
        let model = Model::new(&sample(4, 5, 1), Base::Previous(&b));
        assert_eq!(
            model.domains[0].host_disks.as_ref().unwrap()[0]
                .reads
                .total
                .count,
            5
        );
        assert!(Model::new(&b, Base::Start).domains[0].host_disks.is_none());
        let mut sum = crate::model::ModelSum::default();
        sum.add(Model::new(&b, Base::Previous(&a)));
        sum.add(Model::new(&sample(4, 60, 1_000_000), Base::Previous(&b)));
        let model = sum.finish();
        let disk = &model.domains[0].host_disks.as_ref().unwrap()[0];
        assert_eq!((disk.reads.total.count, disk.ops().round()), (50, 17.0));
    }
}
