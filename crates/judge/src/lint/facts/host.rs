//! The host, its guests and the user's options, as rules see them.

use super::placement::{layouts, online};
use super::{GuestContext, InputKind, Options, Thresholds};
use crate::cost::Waits;
use crate::model::Model;
use crate::placement::{self, CpuMap, GuestLayout, PlacementPlan};
use kvm::kernel_log::LogLine;
use kvm::topology::HostTopology;
use kvm::{CpuSet, Isa};
use std::cell::OnceCell;
use std::collections::HashMap;

/// Everything that a rule may look at.
pub(crate) struct Context<'a> {
    /// The interval.
    pub model: &'a Model,
    /// The guests, in the order of the model's domains.
    pub guests: Vec<GuestContext<'a>>,
    /// Where the guests' threads may run, in the same order.
    pub layouts: Vec<GuestLayout>,
    map: CpuMap,
    /// Where they should run: made once, when a rule asks for it.
    plan: OnceCell<PlacementPlan>,
    /// What the guests' waits are charged to, in the same way.
    waits: OnceCell<Waits<'a>>,
    /// What the user set.
    pub options: &'a Options,
    /// The guest of each process and thread.
    by_pid: OnceCell<HashMap<i32, usize>>,
}

impl<'a> Context<'a> {
    pub fn new(model: &'a Model, options: &'a Options) -> Self {
        let mut names: HashMap<&str, usize> = HashMap::new();
        for domain in &model.domains {
            *names.entry(domain.name()).or_default() += 1;
        }
        let mut guests = Vec::new();
        for (index, domain) in model.domains.iter().enumerate() {
            guests.push(GuestContext {
                is_namesake: names[domain.name()] > 1,
                ..GuestContext::new(model, index, domain)
            });
        }
        let (map, layouts) = layouts(model, &guests, options);
        Self {
            model,
            guests,
            layouts,
            map,
            plan: OnceCell::new(),
            waits: OnceCell::new(),
            options,
            by_pid: OnceCell::new(),
        }
    }

    /// The guests that run.
    pub fn running(&self) -> impl Iterator<Item = &GuestContext<'a>> {
        self.guests.iter().filter(|guest| guest.running())
    }

    /// How busy a CPU is, percent; `None` where it is not measured.
    pub fn busy_of(&self, cpu: u32) -> Option<f64> {
        Some(self.model.host.cpu(cpu)?.time?.busy())
    }

    /// The current thresholds.
    pub fn thresholds(&self) -> &'a Thresholds {
        &self.options.thresholds
    }

    /// The host's CPUs, cores, caches and nodes.
    pub fn topology(&self) -> &'a HostTopology {
        &self.model.host.facts.topology
    }

    /// The CPUs that are online, else all CPUs of the topology: files may describe a host without
    /// its CPU times.
    pub fn online(&self) -> CpuSet {
        online(self.model)
    }

    /// The CPUs that are online, by core and node; empty where the host is unknown.
    pub fn map(&self) -> &CpuMap {
        &self.map
    }

    /// Where a guest's threads may run.
    pub fn layout(&self, guest: &GuestContext<'_>) -> &GuestLayout {
        &self.layouts[guest.index]
    }

    /// The placement plan for all guests.
    pub fn plan(&self) -> &PlacementPlan {
        self.plan
            .get_or_init(|| placement::plan(&self.map, &self.layouts))
    }

    /// What the guests' waits are charged to.
    pub fn waits(&self) -> &Waits<'a> {
        self.waits.get_or_init(|| Waits::new(self.model))
    }

    /// The index of the guest that a process or one of its threads belongs to.
    pub fn by_pid(&self, pid: Option<i32>) -> Option<usize> {
        let by_pid = self.by_pid.get_or_init(|| {
            let mut all = HashMap::new();
            for guest in self.guests.iter().rev() {
                let tids = guest.domain.threads.iter().map(|t| t.tid);
                let ids = guest.domain.facts.pid.into_iter().chain(tids);
                all.extend(ids.map(|id| (id, guest.index)));
            }
            all
        });
        by_pid.get(&pid?).copied()
    }

    /// The guest that a line of the log is about.
    pub fn owner(&self, line: &LogLine) -> Option<usize> {
        if let Some(guest) = self.by_pid(line.pid) {
            return Some(guest);
        }
        if let Some(name) = line.guest.as_deref() {
            return self.guests.iter().position(|g| g.name() == name);
        }
        // The log of a file with one guest is about that guest, unless it names another process.
        if self.is_file() && self.guests.len() == 1 && line.pid.is_none() {
            Some(0)
        } else {
            None
        }
    }

    /// Whether the data is from a file that covers one interval.
    pub fn is_file(&self) -> bool {
        self.options.input == InputKind::File
    }

    /// The value of a KVM module parameter, as its file has it.
    pub fn param(&self, name: &str) -> Option<&'a str> {
        self.model.host.facts.params.get(name).map(|v| v.trim())
    }

    /// A boolean module parameter. `None` for `auto`, the default of `kvm_amd.avic`.
    pub fn param_on(&self, name: &str) -> Option<bool> {
        match self.param(name)? {
            "Y" | "y" | "1" => Some(true),
            "N" | "n" | "0" => Some(false),
            _ => None,
        }
    }

    /// The virtualisation extension below a guest: by its exits, else by its architecture or the
    /// host's.
    pub fn isa(&self, guest: &GuestContext<'_>) -> Option<Isa> {
        let mut of_exits = guest
            .domain
            .exits
            .rows
            .iter()
            .filter_map(|row| Some(row.id?.0));
        let facts = &self.model.host.facts;
        of_exits
            .find(|isa| !matches!(isa, Isa::Other(_)))
            .or(match facts.kvm_flavour.as_deref() {
                _ if guest.config.arch.as_deref() == Some("aarch64") || facts.arch == "aarch64" => {
                    Some(Isa::Arm64)
                }
                Some("kvm_intel") => Some(Isa::Vmx),
                Some("kvm_amd") => Some(Isa::Svm),
                _ => None,
            })
    }

    /// Whether KVM is allowed to virtualise the APIC (Intel `APICv`, AMD AVIC).
    pub fn apic_virtualisation(&self) -> Option<bool> {
        self.param_on("kvm_intel.enable_apicv")
            .or_else(|| self.param_on("kvm_amd.avic"))
    }
}
