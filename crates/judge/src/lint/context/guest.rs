//! One guest, as rules see it.

use crate::model::{AccessRow, DomainModel, GuestConfig, GuestGuess, Model, ThreadModel, total};
use kvm::Space;
use kvm::domain_xml::SHUT_OFF;
use sample::{DomainState, ENLIGHTENMENTS_OFFERED, INVTSC_OFFERED};
use std::collections::BTreeSet;

/// A rate over a shorter interval says nothing, seconds.
const MIN_S: f64 = 0.05;

/// The number of vCPUs is unknown.
pub(crate) const NO_VCPUS: &str =
    "the number of vCPUs is unknown, so there is no rate per vCPU; pass --vcpus to set it";
const NO_INTERVAL: &str = "the time that the figures cover is unknown, so there is no rate; pass --duration to set it";
const TOO_SHORT: &str = "too few events in too short a time for a rate";

/// Why a guest's behaviour is not judged, or not in full.
pub(crate) struct Guard {
    /// The reason, in a sentence.
    pub because: String,
    /// For how many seconds it has run, and after how many it is judged in full; `None` while it does nothing.
    pub watched: Option<(f64, f64)>,
}

/// One guest, with its configuration and its guessed system.
pub(crate) struct GuestContext<'a> {
    pub domain: &'a DomainModel,
    pub config: GuestConfig,
    pub kind: GuestGuess,
    /// Its position among the guests.
    pub index: usize,
    /// Whether another guest has its name.
    pub is_namesake: bool,
    /// Length of the interval, where it is long enough for a rate.
    pub seconds: Option<f64>,
    /// Whether the length of the interval is known, even if it is short.
    pub interval_known: bool,
    /// The Hyper-V enlightenments that the host offers, where that is known.
    pub offered: Option<BTreeSet<String>>,
    /// Whether the host offers `invtsc`, where that is known.
    pub offers_invtsc: Option<bool>,
    /// Why the guest's behaviour is not judged in this interval.
    pub not_judged: Option<Guard>,
    /// What lowers the findings about its behaviour, if it may still boot.
    pub booting: Option<Guard>,
}

impl<'a> GuestContext<'a> {
    pub fn new(model: &Model, index: usize, domain: &'a DomainModel) -> Self {
        let mut config = GuestConfig::of(&domain.facts);
        for name in enlightenments_in_use(domain) {
            config.hyperv.set(name, true);
        }
        let params = &model.host.facts.params;
        let words = |text: &String| text.split_whitespace().map(str::to_owned).collect();
        Self {
            domain,
            kind: GuestGuess::of(domain, &config),
            config,
            index,
            is_namesake: false,
            seconds: model.interval_s.filter(|s| *s >= MIN_S),
            interval_known: model.interval_s.is_some(),
            offered: params.get(ENLIGHTENMENTS_OFFERED).map(words),
            offers_invtsc: params.get(INVTSC_OFFERED).map(|value| value == "Y"),
            not_judged: None,
            booting: None,
        }
    }

    pub fn name(&self) -> &'a str {
        self.domain.name()
    }

    pub fn running(&self) -> bool {
        self.domain.state == DomainState::Running
    }

    /// Whether files say that it does not run, so that only its configuration can be changed.
    pub fn is_shut_off(&self) -> bool {
        self.domain.facts.xml.as_ref().is_some_and(|xml| xml.value.state.as_deref() == Some(SHUT_OFF))
    }

    /// Whether one of its vCPUs has a real-time priority.
    pub fn is_realtime(&self) -> bool {
        !self.config.pins.realtime.is_empty() || self.domain.vcpus().any(ThreadModel::is_realtime)
    }

    /// The reason for a missing rate.
    pub fn why_no_rate(&self) -> &'static str {
        if self.interval_known { TOO_SHORT } else { NO_INTERVAL }
    }

    /// The number of vCPUs that the figures cover, where it is known.
    pub fn vcpus(&self) -> Option<f64> {
        // The exit tables of vCPUs count them where they add up to all exits.
        let by_exits = || {
            let counted = total(self.domain.vcpu_exits.iter().map(|(_, table)| table.count));
            (counted == self.domain.exits.count).then_some(self.domain.vcpu_exits.len() as u32)
        };
        let threads = Some(self.domain.vcpu_count()).filter(|n| *n > 0);
        threads.or(self.config.vcpus).or_else(by_exits).filter(|n| *n > 0).map(f64::from)
    }

    /// How many vCPUs were busy, by CPU time, else by their sleep in exits; at least one. Without either all count as
    /// busy, so that an average over busy vCPUs is never too high.
    pub fn busy_vcpus(&self) -> Option<f64> {
        let vcpus = self.vcpus()?;
        let measured: Vec<f64> = self.domain.vcpus().filter_map(|t| t.cpu).map(|c| c.busy()).collect();
        let busy = if measured.is_empty() {
            match (self.domain.exits.total_ns, self.domain.exits.work_ns) {
                (Some(all), Some(work)) => vcpus - all.saturating_sub(work) as f64 / 1e9 / self.seconds?,
                _ => vcpus,
            }
        } else {
            measured.iter().sum::<f64>() / 100.0
        };
        Some(busy.clamp(1.0, vcpus.max(1.0)))
    }

    /// How long the guest itself ran, percent of its vCPUs' time: measured, else the time outside of exits.
    pub fn guest_cpu(&self) -> Option<f64> {
        let shares: Vec<f64> = self.domain.vcpus().filter_map(|t| t.cpu?.kind(|c| c.guest + c.usr)).collect();
        if !shares.is_empty() {
            return Some(shares.iter().sum::<f64>() / shares.len() as f64);
        }
        let (vcpus, seconds, ns) = (self.vcpus()?, self.seconds?, self.domain.exits.total_ns?);
        Some((100.0 - 100.0 * ns as f64 / 1e9 / (seconds * vcpus)).clamp(0.0, 100.0))
    }

    /// The window of the figures, as evidence says it.
    pub fn window(&self) -> String {
        let rounded = |s: f64| (s * 10.0).round() / 10.0;
        self.seconds.map_or_else(|| "over an unknown time".into(), |s| format!("over {} s", rounded(s)))
    }

    /// The commands that show this guest's exits or accesses without kvmtop; `event` is perf's name of the table.
    pub fn perf_check(&self, event: &str) -> String {
        let facts = &self.domain.facts;
        let pid = facts.pid.map_or_else(|| format!("$(pgrep -o {})", facts.vmm.as_str()), |p| p.to_string());
        format!("check: perf kvm stat record -p {pid} sleep 10; perf kvm stat report --event={event}")
    }
}

/// Enlightenments that the guest is seen to use, whatever its configuration says (Hyper-V TLFS, synthetic MSRs).
fn enlightenments_in_use(domain: &DomainModel) -> impl Iterator<Item = &'static str> + '_ {
    let msr = |r: &AccessRow| r.address.filter(|_| r.space == Space::Msr && r.faults == 0);
    domain
        .accesses
        .iter()
        .filter_map(msr)
        .flat_map(|number| match number {
            0x4000_0020 | 0x4000_0021 => &["hypervclock"][..],
            0x4000_0080..=0x4000_009f => &["vpindex", "synic"],
            0x4000_00b0..=0x4000_00b7 => &["hypervclock", "vpindex", "synic", "stimer"],
            _ => &[],
        })
        .copied()
}
