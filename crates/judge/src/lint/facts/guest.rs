//! One guest, as rules see it.

use crate::figures::seconds;
use crate::model::{DomainModel, GuestConfig, GuestGuess, MIN_RATE_S, Model, ThreadModel, total};
use kvm::Space;
use kvm::cmdline::TCG;
use kvm::domain_xml::SHUT_OFF;
use sample::DomainState;
use std::collections::BTreeMap;

/// The number of vCPUs is unknown.
pub(crate) const NO_VCPUS: &str = "the number of vCPUs is unknown: no rate per vCPU; pass --vcpus";

/// [`GuestContext::emulated`] by QEMU's default: the command line may be an example and need not be
/// the whole.
pub(crate) const BY_DEFAULT: &str = "its command line names no accelerator, and QEMU's default is \
    TCG";
/// The same by Proxmox's setting, which becomes that option.
pub(crate) const BY_PROXMOX: &str = "its configuration says kvm: 0";

/// The window of figures, as evidence says it.
pub(crate) fn window(interval_s: Option<f64>) -> String {
    interval_s.map_or_else(
        || "over an unknown time".into(),
        |s| format!("over {}", seconds(s)),
    )
}

/// The reason for a missing rate.
pub(crate) fn why_no_rate(interval_s: Option<f64>) -> &'static str {
    if interval_s.is_some() {
        "too few events in too short a time for a rate"
    } else {
        "the time that the figures cover is unknown, so there is no rate; pass --duration to set it"
    }
}

/// Why a guest's behaviour is not judged, or not in full.
pub(crate) enum Guard {
    /// It does nothing.
    Paused,
    /// It has run for too short a time.
    Young {
        /// The reason, in a sentence.
        because: String,
        /// For how many seconds it has run.
        seen_s: f64,
        /// After how many seconds it is judged in full.
        needed_s: f64,
    },
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
    /// Length of the interval, even if it is short.
    pub interval_s: Option<f64>,
    /// What the host's kernel and libvirt say of it, by name.
    pub host_params: &'a BTreeMap<String, String>,
    /// Why the guest's behaviour is not judged in this interval.
    pub not_judged: Option<Guard>,
}

impl<'a> GuestContext<'a> {
    pub fn new(model: &'a Model, index: usize, domain: &'a DomainModel) -> Self {
        let mut config = GuestConfig::from_facts(&domain.facts);
        // Enlightenments that the guest is seen to use, whatever its configuration says (Hyper-V
        // TLFS, synthetic MSRs).
        for row in &domain.accesses {
            let used: &[&str] = match row.address {
                _ if row.space != Space::Msr || row.faults > 0 => &[],
                Some(0x4000_0020 | 0x4000_0021) => &["hypervclock"],
                Some(0x4000_0080..=0x4000_009f) => &["vpindex", "synic"],
                Some(0x4000_00b0..=0x4000_00b7) => &["hypervclock", "vpindex", "synic", "stimer"],
                _ => &[],
            };
            for name in used {
                config.hyperv.set(name, true);
            }
        }
        Self {
            domain,
            kind: GuestGuess::new(domain, &config),
            config,
            index,
            is_namesake: false,
            seconds: model.interval_s.filter(|s| *s >= MIN_RATE_S),
            interval_s: model.interval_s,
            host_params: &model.host.facts.params,
            not_judged: None,
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
        self.domain
            .facts
            .xml
            .as_ref()
            .is_some_and(|xml| xml.value.state.as_deref() == Some(SHUT_OFF))
    }

    /// `, Proxmox's default` for a setting that nobody chose.
    pub fn said_if_default(&self, setting: &str) -> &'static str {
        let chosen = self
            .domain
            .facts
            .command
            .as_ref()
            .is_none_or(|command| !command.defaults.contains(&setting));
        if chosen { "" } else { ", Proxmox's default" }
    }

    /// Its number in Proxmox, by its monitor (`/var/run/qemu-server/100.qmp`); `VMID` where a file
    /// does not name it.
    pub fn proxmox_id(&self) -> Option<&'a str> {
        self.domain.facts.command.as_ref()?.proxmox_id()
    }

    /// Whether one of its vCPUs has a real-time priority.
    pub fn is_realtime(&self) -> bool {
        !self.config.pins.realtime.is_empty() || self.domain.vcpus().any(ThreadModel::is_realtime)
    }

    /// The number of vCPUs that the figures cover, where it is known.
    pub fn vcpus(&self) -> Option<f64> {
        let threads = self.domain.vcpu_count();
        let mut count = if threads > 0 {
            Some(threads)
        } else {
            self.config.vcpus
        };
        if count.is_none() {
            // The exit tables of vCPUs count them where they add up to all exits.
            let tables = &self.domain.vcpu_exits;
            if total(tables.iter().map(|(_, table)| table.count)) == self.domain.exits.count {
                count = Some(tables.len() as u32);
            }
        }
        count.filter(|n| *n > 0).map(f64::from)
    }

    /// How many vCPUs were busy, by CPU time; at least one. Without it all count as busy, so that
    /// an average over busy vCPUs is never too high.
    pub fn busy_vcpus(&self) -> Option<f64> {
        let vcpus = self.vcpus()?;
        let busy = self
            .domain
            .vcpus()
            .filter_map(|t| Some(t.cpu?.busy() / 100.0))
            .reduce(|a, b| a + b);
        Some(busy.unwrap_or(vcpus).clamp(1.0, vcpus.max(1.0)))
    }

    /// How long the guest itself ran, percent of its vCPUs' time: measured, else the time outside
    /// of exits.
    pub fn guest_cpu(&self) -> Option<f64> {
        let shares: Vec<f64> = self
            .domain
            .vcpus()
            .filter_map(|t| t.cpu?.kind(|c| c.guest + c.usr))
            .collect();
        if !shares.is_empty() {
            return Some(shares.iter().sum::<f64>() / shares.len() as f64);
        }
        let (vcpus, seconds, ns) = (self.vcpus()?, self.seconds?, self.domain.exits.total_ns?);
        Some((100.0 - 100.0 * ns as f64 / 1e9 / (seconds * vcpus)).clamp(0.0, 100.0))
    }

    /// The window of the figures, as evidence says it.
    pub fn window(&self) -> String {
        window(self.interval_s)
    }

    /// What shows that QEMU emulates its CPU in software (TCG), without KVM. `None`: KVM runs it,
    /// or nothing shows it.
    pub fn emulated(&self) -> Option<&'static str> {
        let domain = self.domain;
        let facts = &domain.facts;
        // Whatever a configuration says, KVM has served this guest.
        if domain.exits.count > 0
            || !domain.userspace.is_empty()
            || !domain.accesses.is_empty()
            || !domain.counters.is_empty()
            || !domain.kvm_events.is_empty()
        {
            return None;
        }
        if facts.emulated {
            return Some("its QEMU has no VM of KVM open");
        }
        if let Some(domain_type) = facts
            .xml
            .as_ref()
            .and_then(|xml| xml.value.domain_type.as_deref())
        {
            return (domain_type == "qemu").then_some("its XML says <domain type='qemu'>");
        }
        let command = facts
            .command
            .as_deref()
            .filter(|command| command.accel.as_deref() == Some(TCG))?;
        Some(if command.defaults.contains(&"accel") {
            BY_DEFAULT
        } else if self.proxmox_id().is_some() {
            BY_PROXMOX
        } else {
            "its command line names accel=tcg"
        })
    }
}
