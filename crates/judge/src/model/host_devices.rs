//! What the host's disks and links carried within an interval.

use super::earlier::by_key;
use super::traced::Traced;
use super::{DomainModel, HostModel, SampleInterval};
use sample::{DomainState, Growing, HostLink, HostNode, Row, WholeDisk};

/// A disk with fewer requests per second is not the slowest one.
const MIN_REQUESTS: f64 = 5.0;

/// A disk of the host, and its work for all who use it.
pub type WholeDiskModel = Traced<WholeDisk>;

impl WholeDiskModel {
    /// Reads and writes per second.
    pub fn ops(&self) -> Option<f64> {
        self.rate_of(self.reads.saturating_add(self.writes))
    }

    /// Mean time of a read or write, microseconds; `None` without one.
    pub fn mean_us(&self) -> Option<f64> {
        let ops = self.reads.saturating_add(self.writes);
        if ops == 0 {
            return None;
        }
        Some(self.time_ns as f64 / ops as f64 / 1e3)
    }

    /// The part of the time in which a request was under way, percent. A disk that works on many
    /// requests at once is not full at 100.
    pub fn busy_percent(&self) -> Option<f64> {
        let percent = self.rate_of(self.busy_ns)? / 1e7;
        Some(percent.min(100.0))
    }
}

/// A network link of the host.
pub type HostLinkModel = Traced<HostLink>;

/// The memory of a NUMA node.
pub type HostNodeModel = Traced<HostNode>;

/// Bytes per second in both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ByteRates {
    /// Read from disks, or received.
    pub inward: f64,
    /// Written to disks, or sent.
    pub outward: f64,
}

impl ByteRates {
    /// Both together.
    pub fn all(self) -> f64 {
        self.inward + self.outward
    }

    /// What is left of it without a part, never below 0: the part may be of other seconds.
    fn without(self, part: Self) -> Self {
        Self {
            inward: (self.inward - part.inward).max(0.0),
            outward: (self.outward - part.outward).max(0.0),
        }
    }

    /// The sum of both.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            inward: self.inward + other.inward,
            outward: self.outward + other.outward,
        }
    }
}

/// What grew since the previous sample. A device that the previous sample lacks is left out: its
/// counters may be older than the interval. `None` where one of the two samples has no list.
pub(super) fn grown<T: Growing + Row>(
    now: Option<&[T]>,
    before: Option<&[T]>,
    interval: &SampleInterval,
) -> Option<Vec<Traced<T>>> {
    let before = by_key(before?, T::key);
    let mut grown = Vec::new();
    for device in now? {
        if let Some(before) = before.get(&device.key()) {
            grown.push(Traced {
                of: device.since(Some(before)),
                seconds: interval.seconds,
                device: None,
            });
        }
    }
    Some(grown)
}

impl HostModel {
    /// Bytes per second of all its disks; `None`: not measured, or it has none. Disks that stand on
    /// others carry the same bytes again, and do not count.
    pub fn disk_rates(&self) -> Option<ByteRates> {
        let rates = self.disks.as_deref()?.iter().map(|disk| {
            if disk.is_stacked {
                return ByteRates::default();
            }
            ByteRates {
                inward: disk.rate_of(disk.read_bytes).unwrap_or(0.0),
                outward: disk.rate_of(disk.write_bytes).unwrap_or(0.0),
            }
        });
        rates.reduce(ByteRates::plus)
    }

    /// Bytes per second of all its links; `None`: not measured, or it has none.
    pub fn link_rates(&self) -> Option<ByteRates> {
        let rates = self.links.as_deref()?.iter().map(|link| ByteRates {
            inward: link.rate_of(link.rx_bytes).unwrap_or(0.0),
            outward: link.rate_of(link.tx_bytes).unwrap_or(0.0),
        });
        rates.reduce(ByteRates::plus)
    }

    /// What its disks read and write beside the guests; `None`: not known.
    pub fn other_disk(&self) -> Option<ByteRates> {
        Some(self.disk_rates()?.without(self.guests_disk?))
    }

    /// What its links receive and send beside the guests; `None`: not known.
    pub fn other_net(&self) -> Option<ByteRates> {
        Some(self.link_rates()?.without(self.guests_net?))
    }

    /// The disk whose requests take longest, of those with at least 5 requests/s.
    pub fn slowest_disk(&self) -> Option<&WholeDiskModel> {
        let mut slowest: Option<&WholeDiskModel> = None;
        for disk in self.disks.iter().flatten() {
            let is_used = disk.ops() >= Some(MIN_REQUESTS);
            if is_used && slowest.is_none_or(|other| disk.mean_us() > other.mean_us()) {
                slowest = Some(disk);
            }
        }
        slowest
    }
}

/// What the guests' disks read and write together; `None` if that of one is not known, which would
/// count as work of the host.
pub(super) fn guests_disk(guests: &[DomainModel]) -> Option<ByteRates> {
    let mut sum = ByteRates::default();
    for guest in guests {
        if guest.state != DomainState::Ended {
            sum = sum.plus(guest.disk_rates()?);
        }
    }
    Some(sum)
}

/// What the guests' interfaces receive and send together; `None` if none is known. A guest without
/// known interfaces has none, or some that are not behind the host's links.
pub(super) fn guests_net(guests: &[DomainModel]) -> Option<ByteRates> {
    if guests.is_empty() {
        return Some(ByteRates::default());
    }
    let rates = guests.iter().filter_map(DomainModel::nic_rates);
    rates.reduce(ByteRates::plus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Base, Model, ModelSum};
    use sample::{DiskSample, DomainSample, NicSample, ProcessIo, Sample};

    fn inward(rates: Option<ByteRates>) -> Option<f64> {
        rates.map(|rates| rates.inward)
    }

    /// The counters of `seconds`: 100 reads/s of 4 KiB and 2 ms, and 7 kB/s received.
    fn sample(seconds: u64) -> Sample {
        let disk = WholeDisk {
            name: "sda".into(),
            reads: 100 * seconds,
            read_bytes: 409_600 * seconds,
            write_bytes: 1000 * seconds,
            time_ns: 200_000_000 * seconds,
            busy_ns: 150_000_000 * seconds,
            in_flight: 3,
            ..WholeDisk::default()
        };
        let upper = WholeDisk {
            name: "dm-0".into(),
            is_stacked: true,
            time_ns: 900_000_000 * seconds,
            ..disk.clone()
        };
        let seldom = WholeDisk {
            name: "sdb".into(),
            reads: seconds,
            time_ns: 999_000_000 * seconds,
            read_bytes: 0,
            write_bytes: 0,
            ..disk.clone()
        };
        let link = HostLink {
            name: "eno1".into(),
            rx_bytes: 7000 * seconds,
            ..HostLink::default()
        };
        let mut sample = Sample {
            mono_ns: seconds * 1_000_000_000,
            ..Sample::default()
        };
        sample.host.disks = Some(vec![disk, upper, seldom]);
        sample.host.links = Some(vec![link]);
        sample
    }

    #[test]
    fn figures_are_per_second_and_count_each_byte_once() {
        let (a, b) = (sample(1), sample(3));
        let host = Model::new(&b, Base::Previous(&a)).host;
        let disks = host.disks.as_ref().unwrap();
        assert_eq!(disks[0].ops(), Some(100.0));
        assert_eq!(disks[0].mean_us(), Some(2000.0));
        assert_eq!(disks[0].busy_percent(), Some(15.0));
        assert_eq!(disks[0].in_flight, 3, "no counter");
        let rates = host.disk_rates().unwrap();
        assert_eq!((rates.inward, rates.outward), (409_600.0, 1000.0));
        assert_eq!(host.link_rates().map(ByteRates::all), Some(7000.0));
        assert_eq!(host.slowest_disk().unwrap().name, "dm-0");
    }

    #[test]
    fn a_vmm_reads_for_a_guest_whose_disks_no_source_reports() {
        let with = |seconds: u64, disks: Vec<DiskSample>| {
            let io = ProcessIo {
                read_bytes: 5000 * seconds,
                write_bytes: 70 * seconds,
            };
            let domain = DomainSample {
                process_io: Some(io),
                devices_ns: 1_000_000_000,
                disks,
                ..DomainSample::default()
            };
            Sample {
                domains: vec![domain],
                ..sample(seconds)
            }
        };
        let a = with(1, Vec::new());
        let rates = |b: &Sample| Model::new(b, Base::Previous(&a)).domains[0].disk_rates();
        let of_vmm = ByteRates {
            inward: 5000.0,
            outward: 70.0,
        };
        assert_eq!(rates(&with(3, Vec::new())), Some(of_vmm));
        let disk = DiskSample {
            read_bytes: 9,
            ..DiskSample::default()
        };
        assert_eq!(rates(&with(3, vec![disk])).map(ByteRates::all), Some(9.0));
        let mut unknown = with(3, Vec::new());
        unknown.domains[0].process_io = None;
        assert_eq!(rates(&unknown), None);
    }

    #[test]
    fn what_is_not_the_guests_is_the_hosts_and_never_below_0() {
        let guest = |read_bytes: u64, rx_bytes: u64| {
            let disk = DiskSample {
                read_bytes,
                ..DiskSample::default()
            };
            let nic = NicSample {
                rx_bytes,
                ..NicSample::default()
            };
            DomainSample {
                disks: vec![disk],
                devices_ns: 1_000_000_000,
                nics: vec![nic],
                nics_ns: 1_000_000_000,
                ..DomainSample::default()
            }
        };
        let host = |domains: Vec<DomainSample>| {
            let before = sample(1);
            let now = Sample {
                domains,
                ..sample(2)
            };
            Model::new(&now, Base::Previous(&before)).host
        };
        let two = host(vec![guest(9600, 5000), guest(100_000, 6000)]);
        let disk = ByteRates {
            inward: 300_000.0,
            outward: 1000.0,
        };
        assert_eq!(two.other_disk(), Some(disk));
        assert_eq!(two.other_net(), Some(ByteRates::default()));
        let one_is_unknown = host(vec![guest(9600, 5000), DomainSample::default()]);
        assert_eq!(one_is_unknown.other_disk(), None);
        assert_eq!(inward(one_is_unknown.other_net()), Some(2000.0));
        let ended = DomainSample {
            state: DomainState::Ended,
            ..DomainSample::default()
        };
        let alone = host(vec![ended]);
        assert_eq!(inward(alone.other_disk()), Some(409_600.0));
        assert_eq!(alone.other_net(), None);
        assert_eq!(inward(host(Vec::new()).other_net()), Some(7000.0));
    }

    #[test]
    fn a_device_that_appears_has_no_figures_yet() {
        let (mut a, b) = (sample(1), sample(2));
        a.host.disks.as_mut().unwrap().truncate(1);
        a.host.links = None;
        let host = Model::new(&b, Base::Previous(&a)).host;
        assert_eq!(host.disks.as_ref().unwrap().len(), 1);
        assert_eq!((host.link_rates(), host.links), (None, None));
        let first = Model::new(&b, Base::Start).host;
        assert_eq!(first.disk_rates(), None);
    }

    #[test]
    fn intervals_of_different_lengths_add_up() {
        let mut sum = ModelSum::default();
        sum.add(Model::new(&sample(2), Base::Previous(&sample(1))));
        sum.add(Model::new(&sample(6), Base::Previous(&sample(3))));
        let host = sum.finish().host;
        assert_eq!(inward(host.disk_rates()), Some(409_600.0));
        assert_eq!(inward(host.link_rates()), Some(7000.0));
        assert_eq!(host.disks.unwrap()[0].mean_us(), Some(2000.0));
    }
}
