//! What interrupted a guest's vCPUs within an interval.

use super::accesses::Owners;
use super::earlier::Earlier;
use super::{SampleInterval, since};
use kvm::Space;
use sample::{DomainSample, Doorbell, Injection, Injector, IrqSource, MissingExtreme, Timing};

/// Interrupts of one kind to one vCPU, by one injector.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InjectionModel {
    /// What they are.
    pub source: IrqSource,
    /// KVM's number of the vCPU.
    pub vcpu: u32,
    /// Who injected them.
    pub by: Injector,
    /// The injecting thread of the guest, where it is one and no vCPU.
    pub tid: Option<i32>,
    /// That thread's name.
    pub comm: Option<String>,
    /// Number of interrupts.
    pub count: u64,
    /// Interrupts per second; `None` if the interval's length is not known.
    pub rate: Option<f64>,
    /// Those that found another one on its way, which no time covers.
    pub joined: u64,
    /// To a vCPU that slept: from the injection until KVM woke its thread.
    pub wake: Timing,
    /// From there until the thread had a CPU.
    pub delay: Timing,
    /// From the injection until the vCPU ran the guest.
    pub slept: Timing,
    /// The same, to a vCPU that did not sleep.
    pub kick: Timing,
}

/// Writes of the guest to one place that KVM passed on as an eventfd and that woke one thread.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DoorbellModel {
    /// Ports or memory.
    pub space: Space,
    /// Port number or guest-physical address.
    pub address: u64,
    /// Its device, if known.
    pub device: Option<String>,
    /// What the thread is.
    pub to: Injector,
    /// The thread.
    pub tid: i32,
    /// Its name.
    pub comm: String,
    /// Such writes per second; `None` if the interval's length is not known.
    pub rate: Option<f64>,
    /// From the wake-up until the thread had a CPU.
    pub time: Timing,
}

/// What makes doorbells the same.
type DoorbellKey = (Space, u64, i32);

impl DoorbellModel {
    /// The doorbells of a guest, the most frequent first; `None` where they are not traced.
    pub(super) fn all(
        now: &DomainSample,
        before: Option<&DomainSample>,
        interval: &SampleInterval,
    ) -> Option<Vec<Self>> {
        let key = |bell: &Doorbell| (bell.space, bell.address, bell.tid);
        let before = before.and_then(|b| b.interrupts.as_ref()).map_or(&[][..], |b| &b.doorbells);
        let mut before = Earlier::new(before, key);
        let owners = Owners::of(&now.facts);
        let grown = |bell: &Doorbell| {
            let time = bell.time.since(before.find(&key(bell)).map(|b| &b.time));
            let Doorbell { space, address, to, tid, comm, .. } = bell;
            let device = owners.name(*space, *address).map(|device| device.name);
            let (rate, comm) = (interval.rate(time.count), comm.clone());
            Self { space: *space, address: *address, device, to: *to, tid: *tid, comm, rate, time }
        };
        let now = now.interrupts.as_ref().filter(|_| interval.started)?;
        let mut all: Vec<Self> = now.doorbells.iter().map(grown).filter(|bell| bell.time.count > 0).collect();
        order_doorbells(&mut all);
        Some(all)
    }

    pub(super) fn key(&self) -> DoorbellKey {
        (self.space, self.address, self.tid)
    }

    /// None of this kind yet; [`DoorbellModel::add`] adds them.
    pub(super) fn none_of((space, address, tid): DoorbellKey) -> Self {
        Self { space, address, tid, ..Self::default() }
    }

    /// Adds another interval; [`DoorbellModel::finish`] makes a rate of the sum.
    pub(super) fn add(&mut self, more: Self) {
        self.time.merge(&more.time, MissingExtreme::Unknown);
        (self.to, self.comm) = (more.to, more.comm);
        self.device = more.device.or(self.device.take());
    }

    pub(super) fn finish(&mut self, seconds: Option<f64>) {
        self.rate = seconds.map(|s| self.time.count as f64 / s);
    }
}

/// The most frequent first.
pub(super) fn order_doorbells(all: &mut [DoorbellModel]) {
    all.sort_by_key(|bell| (std::cmp::Reverse(bell.time.count), bell.key()));
}

/// What makes interrupts the same kind.
type InjectionKey = (IrqSource, u32, Injector, Option<i32>);

impl InjectionModel {
    /// The interrupts of a guest, the most frequent first; `None` where they are not traced.
    pub(super) fn all(
        now: &DomainSample,
        before: Option<&DomainSample>,
        interval: &SampleInterval,
    ) -> Option<Vec<Self>> {
        let key = |i: &Injection| (i.source, i.vcpu, i.by, i.tid);
        let before = before.and_then(|b| b.interrupts.as_ref()).map_or(&[][..], |b| &b.injections);
        let mut before = Earlier::new(before, key);
        let now = now.interrupts.as_ref().filter(|_| interval.started)?;
        let all = now.injections.iter().map(|i| Self::new(i, before.find(&key(i)), interval));
        let mut all: Vec<Self> = all.filter(|i| i.count > 0).collect();
        order(&mut all);
        Some(all)
    }

    fn new(now: &Injection, before: Option<&Injection>, interval: &SampleInterval) -> Self {
        let Injection { source, vcpu, by, tid, comm, count, joined, wake, delay, slept, kick } = now;
        let count = since(*count, before.map(|b| b.count));
        Self {
            source: *source,
            vcpu: *vcpu,
            by: *by,
            tid: *tid,
            comm: comm.clone(),
            count,
            rate: interval.rate(count),
            joined: since(*joined, before.map(|b| b.joined)),
            wake: wake.since(before.map(|b| &b.wake)),
            delay: delay.since(before.map(|b| &b.delay)),
            slept: slept.since(before.map(|b| &b.slept)),
            kick: kick.since(before.map(|b| &b.kick)),
        }
    }

    pub(super) fn key(&self) -> InjectionKey {
        (self.source, self.vcpu, self.by, self.tid)
    }

    /// None of this kind yet; [`InjectionModel::add`] adds them.
    pub(super) fn none_of((source, vcpu, by, tid): InjectionKey) -> Self {
        Self { source, vcpu, by, tid, ..Self::default() }
    }

    /// Adds another interval; [`InjectionModel::finish`] makes a rate of the sum.
    pub(super) fn add(&mut self, more: Self) {
        self.count = self.count.saturating_add(more.count);
        self.joined = self.joined.saturating_add(more.joined);
        let pairs = [
            (&mut self.wake, &more.wake),
            (&mut self.delay, &more.delay),
            (&mut self.slept, &more.slept),
            (&mut self.kick, &more.kick),
        ];
        pairs.into_iter().for_each(|(sum, more)| sum.merge(more, MissingExtreme::Unknown));
        self.comm = more.comm;
    }

    pub(super) fn finish(&mut self, seconds: Option<f64>) {
        self.rate = seconds.map(|s| self.count as f64 / s);
    }

    /// 99th percentile from the injection to the guest, whether the vCPU slept or not, microseconds.
    pub fn p99_us(&self) -> Option<f64> {
        let mut both = self.slept.clone();
        both.merge(&self.kick, MissingExtreme::Unknown);
        both.quantile_us(0.99)
    }

    /// Share of the interrupts that woke the vCPU, percent.
    pub fn asleep_percent(&self) -> Option<f64> {
        (self.count > 0).then(|| 100.0 * self.wake.count as f64 / self.count as f64)
    }

    /// The interrupts of a guest that pass a test, as one; `None` where they are not traced or there is none. KVM's
    /// numbers of vCPUs are not always the VMM's, so these are of all vCPUs.
    pub fn sum_of(all: Option<&[Self]>, wanted: impl Fn(&Self) -> bool) -> Option<Self> {
        let mut these = all?.iter().filter(|i| wanted(i)).cloned();
        let mut sum = these.next()?;
        for more in these {
            sum.rate = sum.rate.zip(more.rate).map(|(a, b)| a + b);
            sum.add(more);
        }
        Some(sum)
    }
}

/// The most frequent first.
pub(super) fn order(all: &mut [InjectionModel]) {
    all.sort_by_key(|i| (std::cmp::Reverse(i.count), i.key()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Base, Model, ModelSum};
    use sample::{GuestInterrupts, Sample};

    fn sample(mono_s: u64, times: u64, each_ns: u64) -> Sample {
        let mut injection = Injection { source: IrqSource::Msi(0x31), count: times, ..Injection::default() };
        (0..times / 2).for_each(|_| injection.wake.add(each_ns));
        let mut bell = Doorbell { space: Space::Pio, address: 0x608, comm: "IO io1".into(), ..Doorbell::default() };
        (0..times).for_each(|_| bell.time.add(each_ns));
        let quiet = Injection { source: IrqSource::Gsi(4), count: 7, ..Injection::default() };
        let interrupts = Some(GuestInterrupts { injections: vec![quiet, injection], doorbells: vec![bell] });
        let domain = DomainSample { interrupts, ..DomainSample::default() };
        Sample { mono_ns: mono_s * 1_000_000_000, domains: vec![domain], ..Sample::default() }
    }

    #[test]
    fn figures_are_those_of_the_interval() {
        let (a, b) = (sample(1, 10, 2000), sample(3, 30, 2000));
        let model = Model::new(&b, Base::Previous(&a));
        let all = model.domains[0].interrupts.as_ref().unwrap();
        // What did not come in the interval is not there.
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].source, all[0].count, all[0].rate), (IrqSource::Msi(0x31), 20, Some(10.0)));
        assert_eq!((all[0].wake.mean_us(), all[0].kick.mean_us()), (Some(2.0), None));
        assert_eq!(all[0].asleep_percent(), Some(50.0));
        assert!(Model::new(&b, Base::Start).domains[0].interrupts.is_none());
        let bells = model.domains[0].doorbells.as_ref().unwrap();
        assert_eq!((bells[0].time.count, bells[0].rate, bells[0].time.mean_us()), (20, Some(10.0), Some(2.0)));
        assert_eq!(bells[0].device.as_deref(), Some("acpi-tmr"));
        let mut sum = ModelSum::default();
        sum.add(model);
        sum.add(Model::new(&sample(4, 60, 2000), Base::Previous(&b)));
        let sum = sum.finish();
        let all = sum.domains[0].interrupts.as_ref().unwrap();
        assert_eq!(sum.domains[0].doorbells.as_ref().unwrap()[0].time.count, 50);
        assert_eq!((all[0].count, all[0].rate.map(f64::round), all[0].wake.count), (50, Some(17.0), 25));
    }
}
