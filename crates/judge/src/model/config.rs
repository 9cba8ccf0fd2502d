//! The configuration of a guest, from its libvirt XML, its QEMU command line, or both.

use kvm::CpuSet;
use kvm::cmdline::{QemuCommand, Smp, is_switched_on};
use kvm::domain_xml::{DomainXml, GuestNumaCell, GuestTopology};
use kvm::hyperv;
use kvm::limits;
use sample::{DomainFacts, Vmm};
use std::collections::{BTreeMap, BTreeSet};

/// The configuration of a guest. A missing setting is evidence only where the part that would have
/// it was seen; the questions below ask for that and answer `None` elsewhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuestConfig {
    /// Whether a part of the configuration was read.
    pub known: bool,
    /// Whether all of it was: the whole XML, or a whole command line, which has everything except
    /// pins.
    pub is_whole: bool,
    /// Which parts were seen to their end.
    pub shown: Shown,
    /// Whether libvirt runs the guest, so that a fix is XML; `None` when not known.
    pub libvirt: Option<bool>,
    /// Guest architecture, as `x86_64`.
    pub arch: Option<String>,
    /// Number of vCPUs.
    pub vcpus: Option<u32>,
    /// CPU mode: `host-passthrough`, `custom`, …
    pub cpu_mode: Option<String>,
    /// The argument of `-cpu` that counts, where QEMU was given one by hand.
    pub cpu_argument: Option<String>,
    /// Where the CPU and its enlightenments are decided.
    pub cpu_place: CpuPlace,
    /// Whether the CPU feature `hypervisor` is switched off: the guest does not learn that it is
    /// one, and looks for no enlightenment (Hyper-V TLFS, "Feature and Interface Discovery").
    pub hypervisor_hidden: bool,
    /// Memory, bytes.
    pub memory: Option<u64>,
    /// Machine type.
    pub machine: Machine,
    /// Hyper-V enlightenments.
    pub hyperv: Enlightenments,
    /// Clocks and timers.
    pub timers: TimerConfig,
    /// The CPUs that its threads may use.
    pub pins: Pins,
    /// The CPU topology that the guest sees.
    pub topology: Option<GuestTopology>,
    /// Memory placement.
    pub numa: NumaConfig,
}

/// The parts of a configuration that were seen to their end: what they lack is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about a configuration"
)]
pub struct Shown {
    hyperv: bool,
    clock: bool,
    topology: bool,
    /// Whether the guest sees no other NUMA cells than those of [`GuestConfig::numa`].
    pub cells: bool,
    /// Whether a thread without a pin in [`GuestConfig::pins`] has none.
    pub pins: bool,
}

/// Where a guest's CPU and its enlightenments are decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CpuPlace {
    /// The elements of its XML.
    #[default]
    Xml,
    /// `-cpu` in the XML's `<qemu:commandline>`: libvirt puts it after its own, and QEMU takes the
    /// last one.
    QemuCommandline,
    /// The command line: the last of this many `-cpu` options.
    CommandLine(usize),
}

/// A QEMU machine type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// Its name as given, as `pc-q35-6.2`.
    pub name: Option<String>,
    /// Its version: QEMU is at least as new.
    pub version: Option<(u32, u32)>,
}

impl Machine {
    /// From the name.
    pub fn parse(name: &str) -> Self {
        let number = name
            .rsplit_once('-')
            .and_then(|(_, number)| number.split_once('.'));
        let version =
            number.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        Self {
            name: Some(name.to_owned()),
            version,
        }
    }
}

/// The Hyper-V enlightenments that are on, by libvirt's names (`synic`, `stimer`, `stimer_direct`,
/// `hypervclock`, …).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Enlightenments {
    on: BTreeSet<String>,
    /// All enlightenments of KVM are on (`mode='passthrough'`, `hv-passthrough`).
    pub passthrough: bool,
}

impl Enlightenments {
    /// Switches one on or off.
    pub fn set(&mut self, name: &str, on: bool) {
        if on {
            self.on.insert(name.to_owned());
        } else {
            self.on.remove(name);
        }
    }

    /// Whether one is on.
    pub fn has(&self, name: &str) -> bool {
        self.passthrough || self.on.contains(name)
    }

    /// Whether any is on.
    pub fn any(&self) -> bool {
        self.passthrough || !self.on.is_empty()
    }
}

/// Clocks and timers. `None` means not configured: the machine's default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimerConfig {
    /// Clock offset: `utc`, `localtime`, …
    pub offset: Option<String>,
    /// Whether the HPET is present.
    pub hpet: Option<bool>,
    /// The PIT's tick policy: `delay`, `discard`.
    pub pit_policy: Option<String>,
}

/// The CPUs that the guest's threads may use, as configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins {
    /// Pinned vCPUs.
    pub vcpus: BTreeMap<u32, CpuSet>,
    /// CPUs of all other threads of the guest (`<vcpu cpuset=…>`).
    pub rest: Option<CpuSet>,
    /// The emulator's own pin, without a number, and pinned IOThreads.
    pub helpers: BTreeMap<Option<u32>, CpuSet>,
    /// Number of IOThreads.
    pub iothread_count: u32,
    /// vCPUs with a real-time policy.
    pub realtime: BTreeSet<u32>,
}

impl Pins {
    fn of_xml(xml: &DomainXml) -> Self {
        let mut helpers = BTreeMap::new();
        if let Some(cpus) = &xml.emulator_pin {
            helpers.insert(None, cpus.clone());
        }
        for (id, cpus) in &xml.iothread_pins {
            helpers.insert(Some(*id), cpus.clone());
        }
        Self {
            vcpus: xml.vcpu_pins.clone(),
            rest: xml.vcpu_cpuset.clone(),
            helpers,
            iothread_count: xml.iothreads.min(limits::IOTHREADS),
            realtime: xml.realtime.iter().collect(),
        }
    }

    /// Where a vCPU may run; `None`: anywhere.
    pub fn vcpu(&self, index: u32) -> Option<&CpuSet> {
        self.vcpus.get(&index).or(self.rest.as_ref())
    }

    /// Where the emulator, or the IOThread with this number, may run; `None`: anywhere.
    pub fn helper(&self, iothread: Option<u32>) -> Option<&CpuSet> {
        self.helpers.get(&iothread).or(self.rest.as_ref())
    }
}

/// Memory placement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NumaConfig {
    /// NUMA cells that the guest sees.
    pub cells: Vec<GuestNumaCell>,
    /// Nodes that its memory is bound to.
    pub nodes: Option<CpuSet>,
}

impl GuestConfig {
    /// Combines XML and command line. The command line is what runs; the XML completes it.
    pub fn from_facts(facts: &DomainFacts) -> Self {
        let machine = facts.machine.as_ref().map(|m| &m.value);
        let machine = machine
            .or_else(|| facts.xml.as_ref()?.value.machine.as_ref())
            .or_else(|| facts.command.as_ref()?.machine.as_ref());
        let mut config = Self {
            machine: machine.map(|name| Machine::parse(name)).unwrap_or_default(),
            vcpus: facts.vcpus.as_ref().map(|v| v.value),
            ..Self::default()
        };
        if matches!(facts.vmm, Vmm::Other(_)) {
            config.libvirt = Some(false);
        }
        if let Some(xml) = &facts.xml {
            config.add_xml(&xml.value);
        }
        if let Some(command) = &facts.command {
            config.add_command(command);
        }
        config
    }

    fn add_xml(&mut self, xml: &DomainXml) {
        self.known = true;
        self.is_whole = xml.is_whole();
        self.shown = Shown {
            hyperv: xml.shows("features/hyperv"),
            clock: xml.shows("clock"),
            topology: xml.shows("cpu/topology"),
            cells: xml.shows("cpu/numa"),
            pins: xml.shows("cputune"),
        };
        self.libvirt = Some(true);
        self.arch.clone_from(&xml.arch);
        self.vcpus = self.vcpus.or(xml.vcpus);
        self.memory = xml.memory;
        self.cpu_mode.clone_from(&xml.cpu.mode);
        let policy = xml.cpu.features.get("hypervisor");
        self.hypervisor_hidden =
            policy.is_some_and(|policy| matches!(policy.as_str(), "disable" | "forbid"));
        for known in hyperv::ALL {
            self.hyperv.set(known.name, xml.hyperv_on(known.name));
        }
        self.hyperv.passthrough = xml
            .hyperv
            .as_ref()
            .is_some_and(|h| h.mode.as_deref() == Some("passthrough"));
        self.hyperv.set(
            hyperv::CLOCK,
            xml.clock.present(hyperv::CLOCK) == Some(true),
        );
        self.timers = TimerConfig {
            offset: xml.clock.offset.clone(),
            hpet: xml.clock.present("hpet"),
            pit_policy: xml.clock.timer("pit").and_then(|t| t.tickpolicy.clone()),
        };
        self.pins = Pins::of_xml(xml);
        self.topology = xml.topology;
        let nodes = xml.numatune.as_ref().and_then(|tune| tune.nodeset.clone());
        self.numa = NumaConfig {
            cells: xml.numa_cells.clone(),
            nodes,
        };
        if let Some(added) = &xml.qemu_command {
            self.overlay(added);
            if !added.cpu_options.is_empty() {
                self.cpu_place = CpuPlace::QemuCommandline;
                self.cpu_argument = added.cpu_options.last().cloned();
                self.shown.hyperv = true;
            }
        }
    }

    fn add_command(&mut self, command: &QemuCommand) {
        let alone = !self.known;
        self.is_whole |= alone;
        self.shown = Shown {
            hyperv: true,
            clock: true,
            topology: true,
            cells: true,
            ..self.shown
        };
        self.libvirt.get_or_insert(command.by_libvirt);
        self.vcpus = self.vcpus.or(command.vcpus());
        self.memory = self.memory.or(command.memory);
        self.known = true;
        self.arch = self
            .arch
            .take()
            .or_else(|| command.arch().map(str::to_owned));
        if self.numa.cells.is_empty() && self.numa.nodes.is_none() {
            self.numa = NumaConfig {
                cells: command.numa_cells(),
                nodes: command.bound_nodes(),
            };
        }
        self.overlay(command);
        if alone {
            self.topology = topology(command.smp, self.machine.version);
            self.pins.iothread_count = command.iothreads.len() as u32;
            self.cpu_place = CpuPlace::CommandLine(command.cpu_options.len());
            self.cpu_argument = command.cpu_options.last().cloned();
        }
    }

    /// What options say of CPU, clocks and timers, in place of what was known before.
    fn overlay(&mut self, command: &QemuCommand) {
        if !command.cpu_options.is_empty() {
            self.hyperv = Enlightenments::default();
            let hypervisor = command.cpu_features.get("hypervisor");
            self.hypervisor_hidden = hypervisor.is_some_and(|value| !is_switched_on(value));
        }
        for known in hyperv::ALL
            .iter()
            .filter(|known| command.hyperv_on(known.name))
        {
            self.hyperv.set(known.name, true);
        }
        self.hyperv.passthrough |= command.hyperv_on("passthrough");
        if command.hv_time == Some(true) {
            self.hyperv.set(hyperv::CLOCK, true);
        }
        let timers = &mut self.timers;
        timers.hpet = command.hpet.or(timers.hpet);
        timers.pit_policy = command.pit_policy.clone().or(timers.pit_policy.take());
        timers.offset = timers.offset.take().or_else(|| command.rtc_base.clone());
    }

    /// Whether an enlightenment is on; `None` if that is not shown.
    pub fn enlightened(&self, name: &str) -> Option<bool> {
        let clock = name == hyperv::CLOCK && self.cpu_place == CpuPlace::Xml;
        let shown = if clock {
            self.shown.clock
        } else {
            self.shown.hyperv
        };
        self.hyperv
            .has(name)
            .then_some(true)
            .or(shown.then_some(false))
    }

    /// Whether the guest is a PC; true if its architecture is unknown.
    pub fn is_x86(&self) -> bool {
        self.arch
            .as_deref()
            .is_none_or(|a| a == "x86_64" || a == "i686")
    }

    /// Whether the guest has an HPET: as configured, or else the default of QEMU's PC machines
    /// (hw/i386/pc.c, `hpet_enabled`); `None` if that is not shown.
    pub fn hpet(&self) -> Option<bool> {
        let is_pc = self.is_x86()
            && self
                .machine
                .name
                .as_deref()
                .is_none_or(|m| !m.starts_with("microvm"));
        self.timers.hpet.or(self.shown.clock.then_some(is_pc))
    }

    /// The PIT's tick policy, `delay` if none is configured; `None` if that is not shown.
    pub fn pit_policy(&self) -> Option<&str> {
        self.timers
            .pit_policy
            .as_deref()
            .or(self.shown.clock.then_some("delay"))
    }

    /// Sockets that the vCPUs are in. Without a topology libvirt gives each vCPU one
    /// (`qemuBuildSmpCommandLine`).
    pub fn sockets(&self) -> Option<u32> {
        match self.topology {
            Some(topology) => Some(topology.sockets),
            None if self.is_whole => self.vcpus,
            None => None,
        }
    }

    /// Hardware threads of a core of the guest, one if not configured; `None` if that is not shown.
    pub fn threads_per_core(&self) -> Option<u32> {
        self.topology
            .map(|t| t.threads.max(1))
            .or(self.shown.topology.then_some(1))
    }
}

/// The topology of `-smp`.
fn topology(smp: Smp, version: Option<(u32, u32)>) -> Option<GuestTopology> {
    Some(GuestTopology {
        sockets: smp.sockets(version)?,
        dies: smp.dies.unwrap_or(1),
        cores: smp.cores.unwrap_or(1),
        threads: smp.threads.unwrap_or(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvm::{cmdline, domain_xml};
    use sample::{Known, Origin};
    use std::sync::Arc;

    fn facts(xml: Option<&str>, command: Option<&str>) -> DomainFacts {
        DomainFacts {
            xml: xml.map(|x| Known::new(Arc::new(domain_xml::parse(x).unwrap()), Origin::File)),
            command: command.map(|c| Arc::new(cmdline::parse_text(c).unwrap())),
            ..DomainFacts::default()
        }
    }

    const XML: &str = "<domain type='kvm'><name>w</name><vcpu cpuset='0-3'>2</vcpu><iothreads>1</iothreads>
        <cputune><vcpupin vcpu='0' cpuset='2'/><emulatorpin cpuset='0'/></cputune>
        <os><type arch='x86_64' machine='pc-q35-6.2'>hvm</type></os>
        <features><hyperv><synic state='on'/><stimer state='on'><direct state='on'/></stimer><avic state='off'/>
        </hyperv>
        </features>
        <clock offset='localtime'><timer name='hpet' present='no'/><timer name='hypervclock' present='yes'/>
        <timer name='pit' tickpolicy='delay'/></clock></domain>";

    #[test]
    fn an_xml_is_read() {
        let c = GuestConfig::from_facts(&facts(Some(XML), None));
        assert!(c.known && c.libvirt == Some(true));
        for (name, on) in [
            ("synic", true),
            ("stimer", true),
            ("stimer_direct", true),
            ("avic", false),
            ("hypervclock", true),
            ("vpindex", false),
        ] {
            assert_eq!(c.enlightened(name), Some(on), "{name}");
        }
        assert_eq!(c.hpet(), Some(false));
        assert_eq!(c.timers.pit_policy.as_deref(), Some("delay"));
        assert_eq!(c.machine.version, Some((6, 2)));
        assert_eq!(
            c.pins.vcpu(1).map(ToString::to_string).as_deref(),
            Some("0-3")
        );
    }

    #[test]
    fn a_command_line_is_read() {
        let c = GuestConfig::from_facts(&facts(
            None,
            Some(
                "qemu-system-x86_64 -machine pc-q35-7.2 -cpu host,hv_time,hv-synic=on -smp \
                4,cores=2,threads=2",
            ),
        ));
        assert_eq!(
            (c.libvirt, c.vcpus, c.threads_per_core()),
            (Some(false), Some(4), Some(2))
        );
        assert!(c.hyperv.has("hypervclock") && c.hyperv.has("synic") && !c.hyperv.has("stimer"));
        assert_eq!(c.hpet(), Some(true), "QEMU's default on a PC");
    }

    #[test]
    fn nothing_known_is_no_absence() {
        let c = GuestConfig::from_facts(&DomainFacts::default());
        assert_eq!((c.enlightened("synic"), c.hpet()), (None, None));
        assert_eq!(
            (c.threads_per_core(), c.is_whole, c.shown.pins),
            (None, false, false)
        );
    }

    #[test]
    fn a_part_is_evidence_about_itself_alone() {
        let part = |text: &str| {
            GuestConfig::from_facts(&facts(
                Some(&format!("<domain type='kvm'>{text}</domain>")),
                None,
            ))
        };
        let c = part(
            "<features><hyperv><vpindex state='on'/><synic state='on'/><stimer \
             state='on'/></hyperv></features>\n<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>",
        );
        assert_eq!(
            (
                c.enlightened("avic"),
                c.enlightened(hyperv::CLOCK),
                c.hpet()
            ),
            (Some(false), None, None)
        );
        assert_eq!(
            (
                c.threads_per_core(),
                c.shown.cells,
                c.shown.pins,
                c.is_whole
            ),
            (None, false, true, false)
        );
        let c = part(
            "<features><hyperv><synic state='on'/></hyperv></features><clock offset='localtime'/>",
        );
        assert_eq!(c.enlightened(hyperv::CLOCK), Some(false));
        let xml = "<domain type='kvm' \
            xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><qemu:commandline><qemu:arg \
            value='-cpu'/><qemu:arg value='host,hv_time'/></qemu:commandline></domain>";
        let c = GuestConfig::from_facts(&facts(Some(xml), None));
        assert_eq!(
            (c.enlightened(hyperv::CLOCK), c.enlightened("synic")),
            (Some(true), Some(false)),
            "the last -cpu"
        );
    }

    #[test]
    fn machine_versions() {
        assert_eq!(Machine::parse("pc-i440fx-2.11").version, Some((2, 11)));
        assert_eq!(Machine::parse("q35").version, None);
        assert_eq!(Machine::parse("pc-q35-rhel9.4.0").version, None);
    }
}
