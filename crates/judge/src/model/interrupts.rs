//! What interrupted a guest's vCPUs within an interval.

use super::accesses::Owners;
use super::earlier::GuestPair;
use super::traced::Traced;
use sample::{Doorbell, Injection, Row as _};
use std::cmp::Reverse;

/// Interrupts of one kind to one vCPU, by one injector.
pub type InjectionModel = Traced<Injection>;

/// Writes of the guest to one place that KVM passed on as an eventfd and that woke one thread.
pub type DoorbellModel = Traced<Doorbell>;

impl DoorbellModel {
    /// The doorbells of a guest, the most frequent first; `None` where they are not traced.
    pub(super) fn of_guest(pair: &GuestPair<'_>) -> Option<Vec<Self>> {
        let mut all = Self::all(pair, |d| Some(&d.interrupts.as_ref()?.doorbells))?;
        all.retain(|bell| bell.time.count > 0);
        let owners = Owners::of(&pair.now.facts);
        for bell in &mut all {
            bell.device = owners
                .name(bell.space, bell.address)
                .map(|device| device.name);
        }
        order_doorbells(&mut all);
        Some(all)
    }

    /// Such writes per second; `None` if the interval's length is not known.
    pub fn rate(&self) -> Option<f64> {
        self.rate_of(self.time.count)
    }
}

/// The most frequent first.
pub(super) fn order_doorbells(all: &mut [DoorbellModel]) {
    all.sort_by_key(|bell| (Reverse(bell.time.count), bell.key()));
}

impl InjectionModel {
    /// The interrupts of a guest, the most frequent first; `None` where they are not traced.
    pub(super) fn of_guest(pair: &GuestPair<'_>) -> Option<Vec<Self>> {
        let mut all = Self::all(pair, |d| Some(&d.interrupts.as_ref()?.injections))?;
        all.retain(|i| i.count > 0);
        order(&mut all);
        Some(all)
    }

    /// Interrupts per second; `None` if the interval's length is not known.
    pub fn rate(&self) -> Option<f64> {
        self.rate_of(self.count)
    }

    /// 99th percentile from the injection to the guest, whether the vCPU slept or not,
    /// microseconds.
    pub fn p99_us(&self) -> Option<f64> {
        self.slept.plus(&self.kick).quantile_us(0.99)
    }
}

/// The most frequent first.
pub(super) fn order(all: &mut [InjectionModel]) {
    all.sort_by_key(|i| (Reverse(i.count), i.key()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Base, Model, ModelSum};
    use kvm::Space;
    use sample::{DomainSample, GuestInterrupts, IrqSource, Sample};

    fn sample(mono_s: u64, times: u64, each_ns: u64) -> Sample {
        let mut injection = Injection {
            source: IrqSource::Msi(0x31),
            count: times,
            ..Injection::default()
        };
        (0..times / 2).for_each(|_| injection.wake.add(each_ns));
        let mut bell = Doorbell {
            space: Space::Pio,
            address: 0x608,
            comm: "IO io1".into(),
            ..Doorbell::default()
        };
        (0..times).for_each(|_| bell.time.add(each_ns));
        let quiet = Injection {
            source: IrqSource::Gsi(4),
            count: 7,
            ..Injection::default()
        };
        let interrupts = Some(GuestInterrupts {
            injections: vec![quiet, injection],
            doorbells: vec![bell],
        });
        let domain = DomainSample {
            interrupts,
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
        let (a, b) = (sample(1, 10, 2000), sample(3, 30, 2000));
        let model = Model::new(&b, Base::Previous(&a));
        let all = model.domains[0].interrupts.as_ref().unwrap();
        // What did not come in the interval is not there.
        assert_eq!(all.len(), 1);
        assert_eq!(
            (all[0].source, all[0].count, all[0].rate()),
            (IrqSource::Msi(0x31), 20, Some(10.0))
        );
        assert_eq!(
            (all[0].wake.mean_us(), all[0].kick.mean_us()),
            (Some(2.0), None)
        );
        assert!(Model::new(&b, Base::Start).domains[0].interrupts.is_none());
        let bells = model.domains[0].doorbells.as_ref().unwrap();
        assert_eq!(
            (
                bells[0].time.count,
                bells[0].rate(),
                bells[0].time.mean_us()
            ),
            (20, Some(10.0), Some(2.0))
        );
        assert_eq!(bells[0].device.as_deref(), Some("acpi-tmr"));
        let mut sum = ModelSum::default();
        sum.add(model);
        sum.add(Model::new(&sample(4, 60, 2000), Base::Previous(&b)));
        let sum = sum.finish();
        let all = sum.domains[0].interrupts.as_ref().unwrap();
        assert_eq!(sum.domains[0].doorbells.as_ref().unwrap()[0].time.count, 50);
        assert_eq!(
            (
                all[0].count,
                all[0].rate().map(f64::round),
                all[0].wake.count
            ),
            (50, Some(17.0), 25)
        );
    }
}
