//! The host's CPU times and constant facts.

use super::interrupts::Interrupts;
use super::power::PowerReader;
use super::topology;
use crate::proc::file::{self, read_word};
use crate::proc::paths::SystemPaths;
use crate::proc::stat::{TICK_NS, number};
use engine::clock_ns;
use kvm::sanitize;
use kvm::topology::{CPU_MODEL, EFFICIENCY_CPUS};
use procfs::CpuInfo;
use procfs::process::StatM;
use rustix::time::ClockId;
use sample::{CpuTimes, HostFacts, OwnCost};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// At most this many parameters of one module are kept.
const MAX_PARAMS: usize = 128;

/// Reads the host in each tick.
#[derive(Debug)]
pub(crate) struct HostReader {
    paths: SystemPaths,
    /// The constant facts, as last read.
    pub facts: Arc<HostFacts>,
    interrupts: Interrupts,
    power: PowerReader,
    /// The numbers of the CPUs of the last reading: a difference means that a CPU went online or
    /// offline.
    cpu_numbers: Vec<u32>,
}

impl HostReader {
    pub fn new(paths: &SystemPaths) -> Self {
        let facts = Arc::new(facts(paths));
        Self {
            power: PowerReader::new(&paths.sys, &facts.kernel),
            facts,
            interrupts: Interrupts::new(paths.proc.join("interrupts")),
            cpu_numbers: Vec::new(),
            paths: paths.clone(),
        }
    }

    /// The CPUs' times and frequencies; empty where /proc/stat cannot be read.
    pub fn cpus(&mut self, now_ns: u64) -> Vec<CpuTimes> {
        let mut cpus = parse_stat(
            &file::read_bytes(&self.paths.proc.join("stat"), 1 << 20).unwrap_or_default(),
        );
        let numbers: Vec<u32> = cpus.iter().map(|c| c.cpu).collect();
        if numbers != self.cpu_numbers {
            if !self.cpu_numbers.is_empty() {
                self.facts = Arc::new(facts(&self.paths));
                self.power.due_ns = 0;
            }
            self.cpu_numbers = numbers;
        }
        self.interrupts.read(&mut cpus);
        let params = self.power.set(&mut cpus, now_ns).unwrap_or_default();
        // The facts are recorded again when they change, so they are replaced only then.
        if params
            .iter()
            .any(|(name, value)| self.facts.params.get(name) != Some(value))
        {
            Arc::make_mut(&mut self.facts).params.extend(params);
        }
        cpus
    }
}

/// The lines `cpuN` of /proc/stat (`proc_stat(5)`), in order of number. procfs drops the numbers,
/// which have gaps where CPUs are offline.
pub(crate) fn parse_stat(text: &[u8]) -> Vec<CpuTimes> {
    let mut cpus: Vec<CpuTimes> = text
        .split(|b| *b == b'\n')
        .filter_map(|line| {
            let mut words = line.strip_prefix(b"cpu")?.split(|b| *b == b' ');
            let cpu = number(words.next()?)?;
            Some(CpuTimes {
                cpu,
                user_ns: next_ns(&mut words),
                nice_ns: next_ns(&mut words),
                system_ns: next_ns(&mut words),
                idle_ns: next_ns(&mut words),
                iowait_ns: next_ns(&mut words),
                irq_ns: next_ns(&mut words),
                softirq_ns: next_ns(&mut words),
                steal_ns: next_ns(&mut words),
                guest_ns: next_ns(&mut words),
                guest_nice_ns: next_ns(&mut words),
                ..CpuTimes::default()
            })
        })
        .collect();
    cpus.sort_by_key(|c| c.cpu);
    cpus
}

fn next_ns<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> u64 {
    let ticks: u64 = words.next().and_then(number).unwrap_or(0);
    ticks.saturating_mul(TICK_NS)
}

/// Reads the constant facts.
fn facts(paths: &SystemPaths) -> HostFacts {
    let kernel = paths.proc.join("sys/kernel");
    // The first CPU's entry is enough; for the whole file the kernel asks each CPU for its
    // frequency.
    let cpuinfo: Option<CpuInfo> = file::read_as(&paths.proc.join("cpuinfo"), 4096);
    let field = |name| cpuinfo.as_ref()?.get_field(0, name);
    let flags = field("flags");
    let flavour = flavour(&paths.sys, field("vendor_id"));
    let modules = std::iter::once("kvm").chain(flavour.as_deref());
    // A made-up /sys in a test stands for another host, whose KVM cannot be asked. Without KVM's
    // module, opening /dev/kvm would load it.
    let may_ask_kvm = flavour.is_some() && paths.sys == Path::new("/sys");
    // KVM passes this bit of the host's CPUID on (leaf 0x80000007, arch/x86/kvm/cpuid.c), and the
    // kernel shows it as these flags (arch/x86/kernel/cpu/intel.c and amd.c).
    let offers = if may_ask_kvm {
        let enlightenments = super::kvm_offers::enlightenments();
        HostFacts::offers(enlightenments, has_flag(flags, "nonstop_tsc"))
    } else {
        HostFacts::offers(None, None)
    };
    let further = [
        // arm64 has only numbers for a model, in other fields.
        (
            CPU_MODEL,
            field("model name").map(|model| sanitize(model, 128)),
        ),
        (
            "kernel.sched_rt_runtime_us",
            word_of(&kernel.join("sched_rt_runtime_us")),
        ),
        (
            EFFICIENCY_CPUS,
            topology::efficiency(&paths.sys).map(|set| set.to_string()),
        ),
    ];
    let further = further
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    HostFacts {
        hostname: word_of(&kernel.join("hostname")).unwrap_or_default(),
        kernel: word_of(&kernel.join("osrelease")).unwrap_or_default(),
        arch: rustix::system::uname()
            .machine()
            .to_string_lossy()
            .into_owned(),
        topology: topology::read(&paths.sys),
        params: modules
            .flat_map(|m| parameters(&paths.sys, m))
            .chain(offers)
            .chain(further)
            .collect(),
        // arm64 lists features, none of which shows a hypervisor.
        virtualised: has_flag(flags, "hypervisor"),
        tick_hz: tick_hz(),
        kvm_flavour: flavour,
    }
}

fn word_of(path: &Path) -> Option<String> {
    read_word(path).map(|word| sanitize(&word, 128))
}

fn has_flag(flags: Option<&str>, name: &str) -> Option<bool> {
    Some(flags?.split_whitespace().any(|flag| flag == name))
}

/// The module of KVM for this CPU's vendor. /sys/module lists modules that are loaded or built in;
/// if it has those of both vendors, the CPU's vendor decides. Any other module named `kvm_*` counts
/// too.
fn flavour(sys: &Path, vendor: Option<&str>) -> Option<String> {
    let vendors_module = match vendor {
        Some("AuthenticAMD" | "HygonGenuine") => "kvm_amd",
        _ => "kvm_intel",
    };
    let mut found = None;
    for entry in std::fs::read_dir(sys.join("module")).ok()?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == vendors_module {
            return Some(name);
        }
        if name == "kvm" || name.starts_with("kvm_") {
            found = found.max(Some(sanitize(&name, 32)));
        }
    }
    found
}

fn parameters(sys: &Path, module: &str) -> BTreeMap<String, String> {
    let Ok(dir) = std::fs::read_dir(sys.join("module").join(module).join("parameters")) else {
        return BTreeMap::new();
    };
    dir.flatten()
        .take(MAX_PARAMS)
        .filter_map(|e| {
            let name = e.file_name().into_string().ok()?;
            Some((
                format!("{module}.{}", sanitize(&name, 64)),
                sanitize(&read_word(&e.path())?, 128),
            ))
        })
        .collect()
}

/// `CONFIG_HZ`: the coarse clock advances once a tick, so its resolution is the tick's length
/// (kernel/time/posix-timers.c, `posix_get_coarse_res`).
fn tick_hz() -> Option<u32> {
    let tick = rustix::time::clock_getres(ClockId::MonotonicCoarse);
    let ns = u32::try_from(tick.tv_nsec)
        .ok()
        .filter(|ns| *ns > 0 && tick.tv_sec == 0)?;
    Some((1_000_000_000 + ns / 2) / ns)
}

/// CPU time and resident memory of this process.
pub(crate) fn own_cost(paths: &SystemPaths) -> OwnCost {
    let memory: Option<StatM> = file::read_as(&paths.proc.join("self/statm"), 256);
    let rss_bytes = memory.map_or(0, |memory| memory.resident) * rustix::param::page_size() as u64;
    OwnCost {
        cpu_ns: clock_ns(ClockId::ProcessCPUTime),
        rss_bytes,
        ..OwnCost::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;

    const STAT: &str = "cpu  10 0 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu2 11 0 0 0 0 0 0 0 0 0\nintr \
        5 6\nctxt 1\n";

    fn host(fake: &FakeProc) -> HostReader {
        fake.write("proc/stat", STAT);
        fake.write(
            "proc/interrupts",
            "  CPU0 CPU2\n 1: 4 5 chip dev\nLOC: 7 8 Local timer\n",
        );
        fake.write(
            "proc/cpuinfo",
            "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu svm hypervisor\n",
        );
        fake.write("proc/sys/kernel/hostname", "h\u{1b}[1mx\n");
        fake.write("proc/sys/kernel/sched_rt_runtime_us", "950000\n");
        fake.write("sys/module/kvm/parameters/halt_poll_ns", "200000\n");
        fake.write("sys/module/kvm_intel/parameters/enable_apicv", "N\n");
        fake.write("sys/module/kvm_amd/parameters/avic", "Y\n");
        fake.write("sys/devices/system/cpu/online", "0,2\n");
        HostReader::new(&fake.paths())
    }

    #[test]
    fn cpus_in_nanoseconds() {
        let fake = FakeProc::new();
        let cpus = host(&fake).cpus(0);
        assert_eq!(cpus.iter().map(|c| c.cpu).collect::<Vec<_>>(), [0, 2]);
        let c = cpus[0];
        assert_eq!(
            [
                c.user_ns,
                c.nice_ns,
                c.system_ns,
                c.idle_ns,
                c.iowait_ns,
                c.irq_ns,
                c.softirq_ns,
                c.steal_ns,
                c.guest_ns,
                c.guest_nice_ns
            ],
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(|t| t * TICK_NS)
        );
        assert_eq!(
            (cpus[1].device_irqs, cpus[1].timer_irqs),
            (Some(5), Some(8))
        );
    }

    #[test]
    fn facts_of_the_host() {
        let fake = FakeProc::new();
        let host = host(&fake);
        let f = host.facts.clone();
        assert_eq!(f.kvm_flavour.as_deref(), Some("kvm_amd"));
        assert_eq!((f.hostname.as_str(), f.virtualised), ("hx", Some(true)));
        assert_eq!(
            f.params.get("kvm.halt_poll_ns").map(String::as_str),
            Some("200000")
        );
        assert_eq!(
            f.params
                .get("kernel.sched_rt_runtime_us")
                .map(String::as_str),
            Some("950000")
        );
        assert_eq!(f.params.get("kvm_amd.avic").map(String::as_str), Some("Y"));
        assert_eq!(f.params.get("kvm_intel.enable_apicv"), None);
    }

    #[test]
    fn a_cpu_that_comes_on_line_renews_the_facts() {
        let fake = FakeProc::new();
        let mut host = host(&fake);
        host.cpus(0);
        assert_eq!(host.facts.topology.cpus.len(), 2);
        fake.write("proc/stat", &STAT.replace("intr", "cpu3 1 0 0 0\nintr"));
        fake.write("sys/devices/system/cpu/online", "0,2-3\n");
        assert_eq!(host.cpus(0).len(), 3);
        assert_eq!(host.facts.topology.cpus.len(), 3);
    }

    #[test]
    fn the_tick_is_a_usual_one() {
        assert!([100, 250, 300, 1000].contains(&tick_hz().unwrap()));
    }

    #[test]
    fn own_cost_is_some() {
        let cost = own_cost(&SystemPaths::default());
        assert!(cost.cpu_ns > 0 && cost.rss_bytes > 100_000);
    }
}
