//! What rules ask of a model: sums over exits and accesses by cause, with rate and cost, and who the guest is.

use crate::kvm::thread_name::Role;
use crate::kvm::{Isa, Space};
use crate::lint::context::vcpu_cpus::VcpuCpus;
use crate::lint::engine::verdicts::NO_TIME;
use crate::lint::{InputKind, Mark, Options};
use crate::model::{AccessRow, DomainModel, ExitRow, ExitTable, GuestConfig, GuestGuess, Model, ThreadModel};
use crate::sample::{Direction, DomainState};

/// A rate over less than this says nothing.
const SHORTEST_S: f64 = 0.05;
/// Fewer events than this are no pattern, however short the time they took.
const FEWEST: u64 = 16;

/// Everything a rule may look at.
pub(crate) struct Context<'a> {
    pub model: &'a Model,
    pub guests: Vec<GuestContext<'a>>,
    pub options: &'a Options,
    /// Lines of the host's log up to here, seconds after boot, were judged before.
    pub log_judged_s: Option<f64>,
}

/// One guest, with its configuration read and its kind guessed.
pub(crate) struct GuestContext<'a> {
    pub domain: &'a DomainModel,
    pub config: GuestConfig,
    pub kind: GuestGuess,
    pub vcpu_cpus: VcpuCpus,
    /// Length of the interval, where it is long enough for a rate.
    pub seconds: Option<f64>,
    /// Whether the interval is known, if short.
    timed: bool,
    /// Why the guest's behaviour is not to be judged now.
    pub guarded: Option<String>,
}

/// A kind of exit: the same event by its codes on each instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitKind {
    HostInterrupt,
    Window,
    Io,
    TprBelow,
    ApicAccess,
    ApicWrite,
    EoiInduced,
    Avic,
    /// SVM has one code for reads and writes.
    MsrWrite,
    EptMisconfig,
    Fault,
    Pause,
    DirtyLog,
    BusLock,
    Notify,
    TripleFault,
    InvalidState,
    /// A guest hypervisor's own instructions.
    Nested,
}

impl ExitKind {
    /// Codes: `uapi/asm/vmx.h`, `uapi/asm/svm.h`, and `kvm::exit_reason::arm64_code`.
    fn codes(self) -> &'static [(Isa, u32)] {
        use Isa::{Arm64, Svm, Vmx};
        match self {
            Self::HostInterrupt => &[(Vmx, 1), (Svm, 0x60), (Arm64, 0x100)],
            Self::Window => &[(Vmx, 7), (Svm, 0x64)],
            Self::Io => &[(Vmx, 30), (Svm, 0x7b)],
            Self::TprBelow => &[(Vmx, 43)],
            Self::ApicAccess => &[(Vmx, 44)],
            Self::ApicWrite => &[(Vmx, 56)],
            Self::EoiInduced => &[(Vmx, 45)],
            Self::Avic => &[(Svm, 0x401), (Svm, 0x402)],
            Self::MsrWrite => &[(Vmx, 32), (Svm, 0x7c)],
            Self::EptMisconfig => &[(Vmx, 49)],
            Self::Fault => &[(Vmx, 48), (Svm, 0x400), (Arm64, 0x24), (Arm64, 0x20)],
            Self::Pause => &[(Vmx, 40), (Svm, 0x77)],
            Self::DirtyLog => &[(Vmx, 62)],
            Self::BusLock => &[(Vmx, 74), (Svm, 0xa5)],
            Self::Notify => &[(Vmx, 75)],
            Self::TripleFault => &[(Vmx, 2), (Svm, 0x7f)],
            Self::InvalidState => &[(Vmx, 33), (Svm, u32::MAX)],
            Self::Nested => &[
                (Vmx, 19),
                (Vmx, 20),
                (Vmx, 21),
                (Vmx, 22),
                (Vmx, 23),
                (Vmx, 24),
                (Vmx, 25),
                (Vmx, 26),
                (Vmx, 27),
                (Vmx, 50),
                (Vmx, 53),
                (Svm, 0x80),
                (Svm, 0x82),
                (Svm, 0x83),
                (Svm, 0x84),
                (Svm, 0x85),
                (Svm, 0x7a),
                (Svm, 0x86),
                (Arm64, 0x1a),
            ],
        }
    }

    fn is(self, row: &ExitRow) -> bool {
        row.id.is_some_and(|id| self.codes().contains(&id))
    }
}

/// Events of one cause within the interval.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventTotals {
    /// How many.
    pub count: u64,
    /// Per second, over the guest.
    pub rate: Option<f64>,
    /// Per second on the vCPU that has most; where rows per vCPU are missing, the average over busy vCPUs.
    pub per_vcpu: Option<f64>,
    /// The vCPU that has most, where rows per vCPU tell.
    pub vcpu: Option<u32>,
    /// Time in them, percent of one CPU.
    pub cost: Option<f64>,
    /// Percent of the guest's exits.
    pub exit_share: Option<f64>,
    /// Mean time, microseconds.
    pub mean_us: Option<f64>,
    /// The rows.
    pub marks: Vec<Mark>,
}

impl EventTotals {
    pub fn rate_or_zero(&self) -> f64 {
        self.rate.unwrap_or(0.0)
    }
}

impl<'a> GuestContext<'a> {
    pub fn new(model: &Model, domain: &'a DomainModel) -> Self {
        let mut config = GuestConfig::of(&domain.facts);
        for name in in_use(domain) {
            config.hyperv.set(name, true);
        }
        let kind = GuestGuess::of(domain, &config);
        let seconds = model.interval_s.filter(|s| *s >= SHORTEST_S);
        let vcpu_cpus = VcpuCpus::new(domain, &config, &model.host.facts.topology);
        Self { domain, config, kind, vcpu_cpus, seconds, timed: model.interval_s.is_some(), guarded: None }
    }

    /// Whether anything tells over what time the figures are.
    pub fn timed(&self) -> bool {
        self.timed
    }

    /// Why there is no rate.
    pub fn no_rate(&self) -> &'static str {
        if self.timed { "too few events in too short a time to speak of a rate" } else { NO_TIME }
    }

    pub fn name(&self) -> &'a str {
        self.domain.name()
    }

    /// The number of vCPUs that the figures are of, where anything tells.
    pub fn vcpus(&self) -> Option<f64> {
        let n = match self.domain.vcpu_count() {
            0 => self.config.vcpus.or_else(|| self.told_apart())?,
            n => n,
        };
        Some(f64::from(n)).filter(|n| *n > 0.0)
    }

    /// How many vCPUs' tables make up all exits; `None` where there are exits beyond those.
    fn told_apart(&self) -> Option<u32> {
        let apart: u64 = self.domain.vcpu_exits.iter().map(|(_, table)| table.count).sum();
        (apart == self.domain.exits.count).then_some(self.domain.vcpu_exits.len() as u32)
    }

    pub fn running(&self) -> bool {
        self.domain.state == DomainState::Running
    }

    /// The guest's exits of some kinds.
    pub fn exits(&self, kinds: &[ExitKind]) -> EventTotals {
        let fits = |r: &&ExitRow| kinds.iter().any(|k| k.is(r));
        let count_in = |t: &ExitTable| t.rows.iter().filter(fits).map(|r| r.span.count).sum::<u64>();
        let rows: Vec<&ExitRow> = self.domain.exits.rows.iter().filter(fits).collect();
        let count = rows.iter().map(|r| r.span.count).sum();
        let ns = total(rows.iter().map(|r| r.span.total_ns));
        let by_vcpu = self.domain.vcpu_exits.iter().map(|(v, t)| (*v, count_in(t))).collect();
        let most = busiest(by_vcpu, count);
        let marks = rows.iter().map(|r| Mark::Exit(r.reason.clone())).collect();
        self.seen(count, ns, most, marks)
    }

    /// The guest's accesses that a test picks.
    pub fn accesses(&self, pick: impl Fn(&AccessRow) -> bool) -> EventTotals {
        let rows: Vec<&AccessRow> = self.domain.accesses.iter().filter(|r| pick(r)).collect();
        let count = rows.iter().map(|r| r.span.count).sum();
        let ns = total(rows.iter().map(|r| r.span.total_ns));
        let mut by_vcpu: Vec<(u32, u64)> = Vec::new();
        for r in self.domain.vcpu_accesses.iter().filter(|r| pick(r)) {
            let Some(v) = r.vcpu else { continue };
            match by_vcpu.iter_mut().find(|(x, _)| *x == v) {
                Some((_, n)) => *n += r.span.count,
                None => by_vcpu.push((v, r.span.count)),
            }
        }
        let most = busiest(by_vcpu, count);
        let marks = rows.iter().take(8).map(|r| Mark::Access(r.space, r.address, r.direction)).collect();
        self.seen(count, ns, most, marks)
    }

    /// As [`GuestContext::accesses`], for one space; times that a perf table measured from the access on are stretched to whole exits,
    /// which is what they cost (perf counts port times from `kvm_pio` to `kvm_entry`, not from `kvm_exit`).
    pub fn ports(&self, pick: impl Fn(&AccessRow) -> bool) -> EventTotals {
        let mut seen = self.accesses(|r| r.space == Space::Pio && pick(r));
        let io = self.exits(&[ExitKind::Io]);
        if let (Some(mean), Some(own), Some(cost)) = (io.mean_us, seen.mean_us, seen.cost)
            && mean > own
            && io.count >= seen.count
        {
            seen.cost = Some(cost * mean / own.max(f64::MIN_POSITIVE));
            seen.mean_us = Some(mean);
        }
        seen
    }

    /// Accesses to regions whose name a test picks.
    pub fn devices(&self, space: Space, pick: impl Fn(&str) -> bool) -> EventTotals {
        let of = |r: &AccessRow| r.space == space && region(r).is_some_and(&pick);
        if space == Space::Pio { self.ports(of) } else { self.accesses(of) }
    }

    /// Accesses to MSRs in one direction.
    pub fn msrs(&self, direction: Direction, pick: impl Fn(u64) -> bool) -> EventTotals {
        self.accesses(|r| r.space == Space::Msr && r.direction == direction && r.address.is_some_and(&pick))
    }

    /// Whether accesses of a space were seen at all: without any, a file may just lack the table.
    pub fn knows(&self, space: Space) -> bool {
        self.domain.accesses.iter().any(|r| r.space == space)
    }

    fn seen(&self, count: u64, ns: Option<u64>, most: Option<(u32, u64)>, marks: Vec<Mark>) -> EventTotals {
        let per = |n: u64| self.seconds.filter(|s| *s >= 0.5 || count >= FEWEST).map(|s| n as f64 / s);
        let rate = per(count);
        let per_vcpu = match most {
            Some((_, n)) => per(n),
            None => rate.zip(self.busy_vcpus()).map(|(r, n)| r / n),
        };
        EventTotals {
            count,
            rate,
            per_vcpu,
            vcpu: most.map(|m| m.0),
            cost: ns.zip(self.seconds).map(|(ns, s)| ns as f64 / (s * 1e7)),
            // More accesses than exits: the two tables are not of the same time.
            exit_share: (self.domain.exits.count > 0 && count <= self.domain.exits.count)
                .then(|| 100.0 * count as f64 / self.domain.exits.count as f64),
            mean_us: ns.filter(|_| count > 0).map(|ns| ns as f64 / count as f64 / 1e3),
            marks,
        }
    }

    /// How many vCPUs were busy, told from CPU times, else from how long they slept in exits; at least one. All of them where
    /// nothing tells, so that what is a share of them is never said too large.
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

    /// How much the guest itself ran, percent of its vCPUs' time: measured, else what exits leave over.
    pub fn guest_cpu(&self) -> Option<f64> {
        let shares: Vec<f64> = self.domain.vcpus().filter_map(|t| t.cpu).map(|c| c.guest + c.usr).collect();
        if !shares.is_empty() {
            return Some(shares.iter().sum::<f64>() / shares.len() as f64);
        }
        let (vcpus, seconds, ns) = (self.vcpus()?, self.seconds?, self.domain.exits.total_ns?);
        Some((100.0 - 100.0 * ns as f64 / 1e9 / (seconds * vcpus)).clamp(0.0, 100.0))
    }

    /// Halts: rate per vCPU and mean sleep in milliseconds.
    pub fn sleeps(&self) -> Option<(f64, f64)> {
        let rows: Vec<&ExitRow> = self.domain.exits.rows.iter().filter(|r| r.idle).collect();
        let count: u64 = rows.iter().map(|r| r.span.count).sum();
        let ns = total(rows.iter().map(|r| r.span.total_ns))?;
        let rate = count as f64 / self.seconds? / self.vcpus()?;
        (count > 0).then(|| (rate, ns as f64 / count as f64 / 1e6))
    }

    /// Cost of a share of one CPU as an average over the vCPUs.
    pub fn over_vcpus(&self, cost: f64) -> Option<f64> {
        self.vcpus().map(|n| cost / n)
    }

    pub fn vcpu_threads(&self) -> impl Iterator<Item = &'a ThreadModel> {
        self.domain.threads.iter().filter(|t| t.role == Role::Vcpu)
    }

    /// Whether the guest's memory is being tracked or copied for a migration or a snapshot.
    pub fn migrating(&self) -> bool {
        let thread = |t: &&ThreadModel| {
            t.comm == "live_migration" || t.comm.starts_with("mig/") || t.comm.starts_with("multifd")
        };
        self.exits(&[ExitKind::DirtyLog]).count > 0 || self.domain.threads.iter().any(|t| thread(&t))
    }

    /// The window of the figures, as evidence says it.
    pub fn window(&self) -> String {
        self.seconds.map_or_else(|| "over an unknown time".into(), |s| format!("over {} s", (s * 10.0).round() / 10.0))
    }

    /// What a `perf kvm stat` of this guest looks like.
    pub fn perf(&self, event: &str) -> String {
        let pid = self.domain.facts.pid.map_or_else(|| "$(pgrep -o qemu)".to_owned(), |p| p.to_string());
        format!("check: perf kvm stat record -p {pid} sleep 10; perf kvm stat report --event={event}")
    }
}

impl Context<'_> {
    /// The guest of a process or of one of its threads.
    pub fn by_pid(&self, pid: Option<i32>) -> Option<usize> {
        let pid = pid?;
        self.guests
            .iter()
            .position(|g| g.domain.facts.pid == Some(pid) || g.domain.threads.iter().any(|t| t.tid == pid))
    }

    pub fn is_file(&self) -> bool {
        self.options.input == InputKind::File
    }

    /// A KVM module parameter, as its file has it.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.model.host.facts.params.get(name).map(|v| v.trim())
    }

    /// A boolean module parameter. `auto` (of `kvm_amd.avic`) is no answer.
    pub fn param_on(&self, name: &str) -> Option<bool> {
        match self.param(name)? {
            "Y" | "y" | "1" => Some(true),
            "N" | "n" | "0" => Some(false),
            _ => None,
        }
    }
}

/// Enlightenments that the guest is seen to use, whatever is known of its configuration.
fn in_use(domain: &DomainModel) -> impl Iterator<Item = &'static str> + '_ {
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

/// The region that owns an address: as the guest's own map names it, else by the addresses that no PC gives to anything else
/// (a map may be a part of one).
pub(crate) fn region(row: &AccessRow) -> Option<&str> {
    row.device_name().or_else(|| match (row.space, row.address?) {
        (Space::Pio, 0x40..=0x43) => Some("kvm-pit"),
        (Space::Pio, 0x60 | 0x64) => Some("i8042"),
        (Space::Pio, 0x70) => Some("rtc-index"),
        (Space::Pio, 0x71) => Some("rtc"),
        (Space::Pio, 0x3f8..=0x3ff | 0x2f8..=0x2ff) => Some("serial"),
        (Space::Pio, 0xcf8..=0xcff) => Some("pci-conf"),
        (Space::Pio, 0x5658) => Some("vmport"),
        (Space::Mmio, 0xfed0_0000..=0xfed0_03ff) => Some("hpet"),
        // arm64's virt machine; a PC has RAM there, which causes no access.
        (Space::Mmio, 0x0900_0000..=0x0900_0fff) => Some("pl011"),
        _ => None,
    })
}

/// The vCPU with most of them, where the vCPUs that are told apart did at least half of all: a file may tell of one alone.
fn busiest(by_vcpu: Vec<(u32, u64)>, all: u64) -> Option<(u32, u64)> {
    let apart: u64 = by_vcpu.iter().map(|(_, n)| *n).sum();
    by_vcpu.into_iter().max_by_key(|(_, n)| *n).filter(|(_, n)| *n > 0 && apart >= all / 2)
}

/// The sum of times, if all are known.
fn total(times: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    let mut all = times.peekable();
    all.peek()?;
    all.try_fold(0u64, |sum, t| Some(sum.saturating_add(t?)))
}
