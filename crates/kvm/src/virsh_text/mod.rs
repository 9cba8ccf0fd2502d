//! The output of `virsh vcpupin`, `vcpuinfo`, `emulatorpin`, `domstats` and `domblkstat`, alone or pasted from a shell
//! with the prompt and command line before each output (libvirt's tools/virsh-domain.c and virsh-domain-monitor.c), and
//! of `numastat`.

use super::cmdline::shell_words;
use super::cpu_set::{CpuSet, MAX_CPUS};
use super::pattern::Pattern;
use super::thread_cpus::ThreadCpus;
use super::unread::UnreadLines;
use super::{clock_seconds, limits, sanitize};
use std::collections::{BTreeMap, BTreeSet};

/// Domains of one text, lines of it, and values of one reading: a guest of 512 vCPUs has about 30,000.
const MAX_DOMAINS: usize = 1024;
const MAX_LINES: usize = 500_000;
const MAX_VALUES: usize = 100_000;

/// One reading of a domain's statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsReading {
    /// The values by libvirt's names: `vcpu.0.time`.
    pub values: BTreeMap<String, String>,
    /// The time of day in milliseconds that a line before it states.
    pub clock_ms: Option<u64>,
}

/// Disks of one domain whose totals are read.
const MAX_DISKS: usize = 256;
/// The rows of `domblkstat`, plain and with `--human` (`domblkstat_output` in libvirt's virsh-domain-monitor.c), and
/// the names in `domstats`.
const BLOCK_TOTALS: &[(&str, &str, &str)] = &[
    ("rd_req", "number of read operations:", "rd.reqs"),
    ("rd_bytes", "number of bytes read:", "rd.bytes"),
    ("wr_req", "number of write operations:", "wr.reqs"),
    ("wr_bytes", "number of bytes written:", "wr.bytes"),
    ("flush_operations", "number of flush operations:", "fl.reqs"),
    ("rd_total_times", "total duration of reads (ns):", "rd.times"),
    ("wr_total_times", "total duration of writes (ns):", "wr.times"),
    ("flush_total_times", "total duration of flushes (ns):", "fl.times"),
];

/// What a text says about one domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VirshDomain {
    /// The domain's name, UUID or number, as the command line or the output names it.
    pub name: Option<String>,
    /// Its number of vCPUs.
    pub vcpus: Option<u32>,
    /// Whether it is paused.
    pub paused: bool,
    /// Whether it is shut off; `None`: no word of its state.
    pub shut_off: Option<bool>,
    /// Where its threads may run.
    pub threads: ThreadCpus,
    /// The first and the last reading of its statistics.
    pub stats: Vec<StatsReading>,
    /// Bytes of its process on each node of the host.
    pub node_memory: BTreeMap<u32, u64>,
    /// Totals since its start that `vcpuinfo` and `domblkstat` print, by libvirt's names of the same statistics.
    pub totals: BTreeMap<String, String>,
}

/// What a text says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VirshText {
    /// In order of appearance.
    pub domains: Vec<VirshDomain>,
    /// Lines within an output that could not be read.
    pub unread: UnreadLines,
    /// The host's number of CPUs, which is the length of each affinity; `None` where they differ.
    pub host_cpus: Option<u32>,
    /// Names of running domains by their ids, as `virsh list` prints them.
    pub ids: BTreeMap<u32, String>,
    /// Names of the domains that it lists as shut off.
    pub off: BTreeSet<String>,
    /// Bytes of processes on each node of the host, and whether the text is about this process alone: it lists no
    /// other, or its number fills a line, as `pidof` prints it.
    pub node_memory: BTreeMap<i32, (bool, BTreeMap<u32, u64>)>,
}

/// Whether a text holds one of these outputs.
pub fn looks_like(text: &str) -> bool {
    let mut reader = Reader::default();
    text.lines().take(20_000).enumerate().any(|(number, line)| {
        reader.line(number + 1, line);
        reader.read > 0
    })
}

/// Reads all outputs of a text.
pub fn parse(text: &str) -> VirshText {
    let mut reader = Reader::default();
    text.lines().take(MAX_LINES).enumerate().for_each(|(number, line)| reader.line(number + 1, line));
    // virsh leaves out a time of 0 (`virshVcpuinfoPrint`), and whoever cuts a text leaves out all of them.
    for (at, vcpu) in std::mem::take(&mut reader.running) {
        let Some(totals) = reader.found.domains.get_mut(at).map(|domain| &mut domain.totals) else { continue };
        if totals.keys().any(|key| key.starts_with("vcpu.")) {
            totals.entry(format!("vcpu.{vcpu}.time")).or_insert_with(|| "0".into());
        }
    }
    let is_only = reader.found.node_memory.len() == 1;
    for (pid, (is_it, _)) in &mut reader.found.node_memory {
        *is_it = is_only || reader.processes.contains(pid);
    }
    // Masks of one host are equally long: others lack their ends, and what an end allows is unknown.
    for (at, domain) in reader.found.domains.iter_mut().enumerate() {
        if reader.lengths.range((at, 0)..=(at, usize::MAX)).nth(1).is_some() {
            domain.threads.vcpus.retain(|vcpu, _| reader.settings.contains(&(at, *vcpu)));
        }
    }
    reader
        .found
        .domains
        .retain(|domain| *domain != VirshDomain { name: domain.name.clone(), ..VirshDomain::default() });
    let mut lengths = reader.lengths.iter().map(|(_, length)| *length);
    let length = lengths.next().filter(|first| lengths.all(|other| other == *first));
    reader.found.host_cpus = length.and_then(|all| u32::try_from(all).ok()).filter(|all| *all <= MAX_CPUS);
    reader.found
}

/// The table that the next lines belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum VirshOutput {
    #[default]
    None,
    /// `VCPU: CPU Affinity` or `emulator: CPU Affinity`
    Pins,
    /// `VCPU: 0`, `CPU: 3`, `State: running`, `CPU time: 7.0s`, `CPU Affinity: yy--`; with the vCPU.
    VcpuInfo(Option<u32>),
    /// `Domain: 'web'` and ` vcpu.0.state=1`.
    Stats,
    /// `vda rd_req 12`; ` rd_req 12` for all disks together.
    BlockStats,
    /// ` 6    web    running`
    List,
    /// `1234 (qemu-kvm)   6230.00   1993.12   8223.12`; `Total   6230.00   1993.12   8223.12` of one process.
    NodeMemory,
}

#[derive(Debug, Default)]
struct Reader {
    found: VirshText,
    table: VirshOutput,
    /// The position of the domain that the lines belong to.
    domain: Option<usize>,
    /// Lines that said something.
    read: usize,
    /// The last time of day, milliseconds.
    clock_ms: Option<u64>,
    /// The vCPUs, each with its domain's position, whose setting `vcpupin` printed.
    settings: BTreeSet<(usize, u32)>,
    /// The vCPUs, each with its domain's position, that run.
    running: BTreeSet<(usize, u32)>,
    /// The nodes of `numastat`, the process that its title names, and the numbers that fill a line.
    nodes: Vec<u32>,
    process: Option<i32>,
    processes: BTreeSet<i32>,
    /// The lengths of affinities, each with its domain's position.
    lengths: BTreeSet<(usize, usize)>,
}

impl Reader {
    fn line(&mut self, number: usize, raw: &str) {
        let line = raw.trim();
        if !line.contains('=') {
            let now = clock_seconds(line).map(|seconds| (seconds * 1000.0).round() as u64);
            self.clock_ms = now.or(self.clock_ms);
        }
        if let Some((_, process)) = line.split_once("memory usage (in MBs)") {
            self.process = process.split_whitespace().nth(2).and_then(|pid| pid.parse().ok());
        }
        self.processes.extend(line.parse::<i32>().ok().filter(|_| self.processes.len() < MAX_DOMAINS));
        if let Some((output, domain)) = command(line) {
            self.open(domain);
            self.table = output;
            return;
        }
        // Web pages double the line breaks.
        if line.bytes().all(|b| b == b'-') || self.heading(line) {
            return;
        }
        if self.row(line).is_some() {
            self.read += 1;
        } else if self.table == VirshOutput::Pins {
            // Prose ends a table; a row with a number and no list of CPUs is one that cannot be read.
            if line.starts_with(|c: char| c.is_ascii_digit() || c == '*') {
                self.found.unread.add(number, line);
            } else {
                self.table = VirshOutput::None;
            }
        }
    }

    /// A title or the first line of an output.
    fn heading(&mut self, line: &str) -> bool {
        if let Some(name) = line.strip_prefix("Domain: '").and_then(|name| name.strip_suffix('\'')) {
            self.open(Some(name.to_owned()));
            self.table = VirshOutput::Stats;
            return true;
        }
        let words: Vec<&str> = line.split([' ', '\t', ':']).filter(|word| !word.is_empty()).collect();
        match words.as_slice() {
            ["VCPU", "CPU", "Affinity"] => {
                self.open_again(|threads| !threads.vcpus.is_empty() && threads.last.is_empty());
            }
            ["emulator", "CPU", "Affinity"] => self.open_again(|threads| threads.emulator.is_some()),
            ["Id", "Name", "State", ..] => {
                self.table = VirshOutput::List;
                return true;
            }
            ["PID", "Node", ..] | ["Node", _, .., "Total"] => {
                self.nodes = words.iter().filter_map(|word| word.parse().ok()).collect();
                self.table = VirshOutput::NodeMemory;
                return true;
            }
            _ => return false,
        }
        self.table = VirshOutput::Pins;
        true
    }

    /// Turns to a new domain if an unnamed one `has` such rows already: these are then about another domain.
    fn open_again(&mut self, has: impl Fn(&ThreadCpus) -> bool) {
        let domain = self.domain.and_then(|at| self.found.domains.get(at));
        if domain.is_some_and(|domain| domain.name.is_none() && has(&domain.threads)) {
            self.open(None);
        }
    }

    /// Turns to a domain: the one of this name, or a new one.
    fn open(&mut self, name: Option<String>) {
        let name = name.map(|name| sanitize(&name, 256));
        let known = self.found.domains.iter().position(|domain| name.is_some() && domain.name == name);
        if known.is_none() && self.found.domains.len() < MAX_DOMAINS {
            self.found.domains.push(VirshDomain { name, ..VirshDomain::default() });
        }
        self.domain = known.or_else(|| self.found.domains.len().checked_sub(1));
    }

    /// Begins a reading of the domain's statistics. The first and the last one are kept.
    fn open_reading(&mut self) {
        let clock_ms = self.clock_ms;
        let Some(domain) = self.domain() else { return };
        domain.stats.truncate(1);
        domain.stats.push(StatsReading { clock_ms, ..StatsReading::default() });
    }

    fn domain(&mut self) -> Option<&mut VirshDomain> {
        if self.domain.is_none() {
            self.open(None);
        }
        self.found.domains.get_mut(self.domain?)
    }

    fn row(&mut self, line: &str) -> Option<()> {
        match self.table {
            VirshOutput::Pins => self.pin(line),
            VirshOutput::Stats if line.contains('=') => self.statistic(line),
            VirshOutput::BlockStats => self.block_total(line),
            VirshOutput::List => self.listed(line),
            VirshOutput::NodeMemory => self.node_memory(line).or_else(|| self.property(line)),
            _ => self.property(line),
        }
    }

    /// ` 0      0-3`, `   0: 0-3`, `  *: 0-3`.
    fn pin(&mut self, line: &str) -> Option<()> {
        let (id, cpus) = line.split_once([' ', '\t', ':'])?;
        let cpus = CpuSet::parse(cpus.trim_start_matches([':', ' ', '\t'])).ok().filter(|set| !set.is_empty())?;
        let threads = &mut self.domain()?.threads;
        if id == "*" {
            threads.emulator = Some(cpus);
            return Some(());
        }
        let id = id.parse::<u32>().ok().filter(|id| *id < limits::VCPUS)?;
        threads.vcpus.insert(id, cpus);
        self.settings.extend(self.domain.map(|domain| (domain, id)));
        Some(())
    }

    /// `vcpu.0.state=1` and its like (virConnectGetAllDomainStats).
    fn statistic(&mut self, line: &str) -> Option<()> {
        let (key, value) = line.split_once('=').map(|(key, value)| (key.trim(), value.trim()))?;
        if !key.contains('.') || key.contains(' ') {
            return None;
        }
        let domain = self.domain()?;
        match key {
            // virDomainState: 3 paused, 5 shut off.
            "state.state" => (domain.paused, domain.shut_off) = (value == "3", Some(value == "5")),
            "vcpu.current" => domain.vcpus = Some(value.parse().ok().filter(|n| *n <= limits::VCPUS)?),
            _ => {}
        }
        // A name that comes again begins a reading; after a heading, `--cpu-total` may complete one of `--vcpu`.
        if domain.stats.last().is_none_or(|last| last.values.contains_key(key)) {
            self.open_reading();
        }
        let reading = self.domain()?.stats.last_mut()?;
        if reading.values.len() < MAX_VALUES {
            reading.values.insert(sanitize(key, 128), sanitize(value, 256));
        }
        Some(())
    }

    /// A row of `virsh list`. A domain that is shut off lacks an id.
    fn listed(&mut self, line: &str) -> Option<()> {
        let (id, rest) = line.split_once(' ')?;
        let name = rest.trim_start().split("  ").next().filter(|name| !name.is_empty())?;
        if let Some(id) = id.parse().ok().filter(|_| self.found.ids.len() < MAX_DOMAINS) {
            self.found.ids.entry(id).or_insert_with(|| sanitize(name, 256));
        } else if rest.trim_end().ends_with("shut off") && self.found.off.len() < MAX_DOMAINS {
            self.found.off.insert(sanitize(name, 256));
        }
        Some(())
    }

    /// A row of `numastat`, in MiB.
    fn node_memory(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (names, values) = words.split_at_checked(words.len().checked_sub(self.nodes.len() + 1)?)?;
        let pid = match names.first()? {
            &"Total" => self.process?,
            pid => pid.parse().ok()?,
        };
        let bytes = |value: &&str| Some((value.parse::<f64>().ok()? * 1024.0 * 1024.0) as u64);
        let nodes = self.nodes.iter().zip(values).map(|(node, value)| Some((*node, bytes(value)?)));
        let nodes: BTreeMap<u32, u64> = nodes.collect::<Option<_>>()?;
        if self.found.node_memory.len() < MAX_DOMAINS {
            self.found.node_memory.insert(pid, (false, nodes));
        }
        Some(())
    }

    /// A row of `domblkstat`.
    fn block_total(&mut self, line: &str) -> Option<()> {
        let (row, count) = line.rsplit_once([' ', '\t'])?;
        let (row, count) = (row.trim_end(), count.parse::<u64>().ok()?);
        let (device, key) = BLOCK_TOTALS.iter().find_map(|(name, human, key)| {
            let device = row.strip_suffix(human).or_else(|| row.strip_suffix(name))?;
            (device.is_empty() || device.ends_with([' ', '\t'])).then(|| (device.trim(), key))
        })?;
        let device = if device.is_empty() { "all disks".to_owned() } else { sanitize(device, 64) };
        let totals = &mut self.domain()?.totals;
        let name = |at: usize| format!("block.{at}.name");
        let at = (0..MAX_DISKS).find(|at| totals.get(&name(*at)).is_none_or(|known| *known == device))?;
        totals.insert(name(at), device);
        totals.insert(format!("block.{at}.{key}"), count.to_string());
        let known = totals.get("block.count").and_then(|count| count.parse().ok()).unwrap_or(0);
        totals.insert("block.count".into(), known.max(at + 1).to_string());
        Some(())
    }

    /// A line of `vcpuinfo`, whose first line names the vCPU.
    fn property(&mut self, line: &str) -> Option<()> {
        let (label, value) = line.split_once(':')?;
        let (label, value) = (label.trim(), value.trim());
        if label.eq_ignore_ascii_case("vcpu") {
            let vcpu = value.parse::<u32>().ok().filter(|vcpu| *vcpu < limits::VCPUS)?;
            self.open_again(|threads| threads.last.contains_key(&vcpu));
            self.table = VirshOutput::VcpuInfo(Some(vcpu));
            return Some(());
        }
        match (self.table, label) {
            (VirshOutput::VcpuInfo(Some(vcpu)), "CPU") => {
                if let Ok(cpu) = value.parse::<u32>() {
                    self.domain()?.threads.last.insert(vcpu, cpu);
                }
            }
            (VirshOutput::VcpuInfo(Some(vcpu)), _) if affinity(value).is_some() => {
                let (cpus, all) = affinity(value)?;
                self.domain()?;
                self.lengths.extend(self.domain.map(|domain| (domain, all)));
                let is_set = self.domain.is_some_and(|domain| self.settings.contains(&(domain, vcpu)));
                let pins = &mut self.domain()?.threads.vcpus;
                // A host can narrow what was set: that is where the thread runs now, and no other setting.
                let is_narrower = is_set && pins.get(&vcpu).is_some_and(|set| cpus.is_subset(set));
                // A mask that includes every CPU does not restrict the vCPU: a setting says more.
                let says_more = cpus.len() < all || !pins.contains_key(&vcpu);
                if says_more && !cpus.is_empty() && !is_narrower {
                    pins.insert(vcpu, cpus);
                }
                self.table = VirshOutput::VcpuInfo(None);
            }
            (VirshOutput::VcpuInfo(Some(vcpu)), "CPU time") => {
                let seconds: f64 = value.strip_suffix('s')?.replace(',', ".").parse().ok()?;
                let ns = (seconds * 1e9) as u64;
                self.domain()?.totals.insert(format!("vcpu.{vcpu}.time"), ns.to_string());
            }
            (VirshOutput::VcpuInfo(Some(vcpu)), "State") => {
                let domain = self.domain()?;
                domain.paused = value == "paused";
                domain.shut_off = (value == "N/A").then_some(true).or(domain.shut_off);
                self.running.extend(self.domain.filter(|_| value == "running").map(|domain| (domain, vcpu)));
            }
            _ => return None,
        }
        Some(())
    }
}

/// A pasted command line: `root@host:~# virsh -c qemu:///system vcpupin web`, or `virsh # vcpupin web`.
static COMMAND: Pattern = Pattern::new(concat!(
    "(?:^|[^A-Za-z0-9_])virsh(?: *[#>])?(?: +-[^ ]+| +[^ ]+://[^ ]*)* +",
    "(?P<output>vcpupin|emulatorpin|vcpuinfo|domstats|domblkstat)(?P<rest>[ ;].*)?$",
));

/// The output that a pasted command line announces, and the domain that it names. The statistics name each domain
/// themselves.
fn command(line: &str) -> Option<(VirshOutput, Option<String>)> {
    let found = COMMAND.captures(line)?;
    let output = match &found["output"] {
        "vcpupin" | "emulatorpin" => VirshOutput::Pins,
        "vcpuinfo" => VirshOutput::VcpuInfo(None),
        "domblkstat" => VirshOutput::BlockStats,
        _ => VirshOutput::Stats,
    };
    let words = shell_words(found.name("rest").map_or("", |rest| rest.as_str()));
    let mut before = "";
    let mut words =
        words.iter().map(|word| word.strip_prefix("--domain=").unwrap_or(word).trim_end_matches([';', '`']));
    let name = words.find(|word| {
        let option = std::mem::replace(&mut before, word);
        !word.is_empty() && !word.starts_with('-') && !matches!(option, "--vcpu" | "--cpulist")
    });
    // A placeholder of a manual is not a name: `<vm_name>`, `$VM`.
    Some((output, name.filter(|name| !name.contains(['|', '>', '&', ';', '<', '$'])).map(str::to_owned)))
}

/// A pasted command line about one domain.
static ABOUT: Pattern = Pattern::new(concat!(
    r"(?m)(?:^|[^A-Za-z0-9_])virsh(?: +-[^ \n]+| +[^ \n]+://[^ \n]*)* +",
    "(?:start|edit|dumpxml|dominfo|shutdown|destroy|reboot|vcpupin|emulatorpin|iothreadpin|vcpuinfo|setvcpus) +",
    r"(?:--domain[ =])?(?P<name>[A-Za-z0-9_.][A-Za-z0-9_.-]*)(?:[ ;\r]|$)",
));

/// The name of the only domain that the command lines of a text are about: `virsh start web`. One in capitals alone is
/// a placeholder, a number is an id.
pub fn only_name(text: &str) -> Option<String> {
    let found = ABOUT.captures_iter(text).filter_map(|found| found.name("name")).map(|name| name.as_str());
    let mut names = found.filter(|name| name.bytes().any(|b| b.is_ascii_lowercase()));
    let first = names.next()?;
    names.all(|name| name == first).then(|| sanitize(first, 256))
}

/// Parses `yy--` or, with `--pretty`, `0-1 (out of 4)`: the CPUs, and how many the host has.
fn affinity(value: &str) -> Option<(CpuSet, usize)> {
    if let Some((list, all)) = value.split_once(" (out of ") {
        return Some((CpuSet::parse(list).ok()?, all.trim_end_matches(')').parse().ok()?));
    }
    let all = value.len();
    if all == 0 || all > MAX_CPUS as usize || !value.bytes().all(|b| matches!(b, b'y' | b'-')) {
        return None;
    }
    Some((value.bytes().zip(0u32..).filter(|(bit, _)| *bit == b'y').map(|(_, cpu)| cpu).collect(), all))
}

#[cfg(test)]
mod tests;
