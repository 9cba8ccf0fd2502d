//! A QEMU command line: from `/proc/PID/cmdline`, from libvirt's log, from `ps`, or pasted from a script.

mod disks;
mod options;

pub use disks::CommandDisk;
pub(crate) use disks::DISK_LIMITS;
pub use options::is_switched_on;

use super::cpu_set::CpuSet;
use super::device_property::DeviceProperty;
use super::domain_xml::GuestNumaCell;
use super::limits;
use super::pattern::{Pattern, group};
use super::thread_cpus::ThreadCpus;
use anyhow::{Context as _, Result};
use regex::Captures;
use serde::{Deserialize, Serialize};
use shlex::Shlex;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Command lines of guests with hundreds of devices stay below this.
const MAX_TEXT: usize = 1024 * 1024;
/// Maximum number of arguments on a command line.
pub const MAX_ARGS: usize = 20_000;

/// The accelerator of QEMU that emulates the guest's CPU in software.
pub const TCG: &str = "tcg";

/// `-smp` as written. Absent parts are `None`; QEMU fills them in.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Smp {
    /// vCPUs at start.
    pub cpus: Option<u32>,
    /// vCPUs with hotplug.
    pub maxcpus: Option<u32>,
    /// Sockets.
    pub sockets: Option<u32>,
    /// Dies in a socket.
    pub dies: Option<u32>,
    /// Cores in a die.
    pub cores: Option<u32>,
    /// Threads in a core.
    pub threads: Option<u32>,
}

impl Smp {
    /// The number of sockets, which QEMU computes if it is not written: before version 6.2 of the machine each CPU that
    /// nothing else places is a socket, later a core (`machine_parse_smp_config`). `None` where that is not known.
    pub fn sockets(&self, machine: Option<(u32, u32)>) -> Option<u32> {
        let inside = [self.dies, self.cores, self.threads].into_iter().flatten().try_fold(1, u32::checked_mul)?;
        let all = || Some(self.maxcpus.or(self.cpus)? / inside.max(1));
        self.sockets.or_else(|| match machine {
            _ if self.cores.is_some() => all(),
            Some(version) if version < (6, 2) => all(),
            Some(_) => Some(1),
            None => None,
        })
    }
}

/// The options of a QEMU command line. `None` means that the option is absent and QEMU's default applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QemuCommand {
    /// Path of the program.
    pub program: String,
    /// `-name guest=`.
    pub name: Option<String>,
    /// `-uuid`, lower case.
    pub uuid: Option<String>,
    /// Machine type, as written: `pc-q35-6.2`.
    pub machine: Option<String>,
    /// Accelerator: `kvm`, [`TCG`]. Of a whole command line in a text also QEMU's default.
    pub accel: Option<String>,
    /// vCPUs and their topology.
    pub smp: Smp,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// CPU features other than Hyper-V's, `-` spelling: `invtsc` to `on`.
    pub cpu_features: BTreeMap<String, String>,
    /// Hyper-V enlightenments by libvirt's element names (`stimer`, `stimer_direct`, `vendor_id`), with `on`, `off` or
    /// a value. `hv-time` is [`QemuCommand::hv_time`]; `hv-passthrough` is `passthrough`.
    pub hyperv: BTreeMap<String, String>,
    /// `hv-time`, libvirt's `hypervclock`.
    pub hv_time: Option<bool>,
    /// `kvmclock`.
    pub kvmclock: Option<bool>,
    /// `-machine hpet=` or `-no-hpet`. Absent means that a pc machine has one.
    pub hpet: Option<bool>,
    /// `-rtc base=`.
    pub rtc_base: Option<String>,
    /// `-rtc driftfix=`.
    pub rtc_driftfix: Option<String>,
    /// `kvm-pit.lost_tick_policy`: `delay` or `discard`.
    pub pit_policy: Option<String>,
    /// Paths of the unix sockets of QMP monitors.
    pub qmp_sockets: Vec<String>,
    /// `-name debug-threads=on`: vCPU threads carry their number.
    pub debug_threads: bool,
    /// Ids of the `IOThread`s.
    pub iothreads: Vec<String>,
    /// vCPUs that are plugged in as a `-device`.
    pub plugged_vcpus: u32,
    /// Properties of devices that change how they are served.
    pub device_properties: Vec<DeviceProperty>,
    /// `-numa node`: the guest's cells, each with the id of the memory backend that it uses. Not recorded.
    #[serde(skip)]
    pub cells: Vec<(GuestNumaCell, Option<String>)>,
    /// Host nodes to which `policy=bind` binds a `memory-backend-*`, by its id. Not recorded.
    #[serde(skip)]
    pub bound_memory: BTreeMap<String, CpuSet>,
    /// The arguments of `-cpu` in order, sanitized. QEMU takes the last one alone (system/vl.c, `QEMU_OPTION_cpu`).
    pub cpu_options: Vec<String>,
    /// Names of the files that drives use, without their folders, sanitized.
    pub drive_files: Vec<String>,
    /// Disks that have an id.
    pub disks: Vec<CommandDisk>,
    /// Whether libvirt wrote it, by its monitor, its key and its folders. The form of `-name` alone does not tell:
    /// scripts copy it.
    pub by_libvirt: bool,
    /// Settings that nobody wrote down, with their options: QEMU's or Proxmox's defaults. Not recorded.
    #[serde(skip)]
    pub defaults: Vec<&'static str>,
    /// A device that is passed through, and the memory in MiB down to which Proxmox's ballooning goes. Not recorded.
    #[serde(skip)]
    pub ballooned: Option<(String, u64)>,
    /// `-append`: the command line of a kernel that QEMU loads itself, sanitized.
    pub append: Option<String>,
    /// The CPUs to which `taskset -c` or `numactl -C` before it, or Proxmox's `affinity`, holds all its threads. Not
    /// recorded.
    #[serde(skip)]
    pub held_to: Option<CpuSet>,
    /// Whether options are missing: the text broke off, or dots stand for some. No recording holds such a command.
    #[serde(skip)]
    pub is_cut: bool,
}

impl QemuCommand {
    /// The guest's NUMA cells, with the host nodes that their memory is bound to.
    pub fn numa_cells(&self) -> Vec<GuestNumaCell> {
        let bound = |memory: &Option<String>| self.bound_memory.get(memory.as_ref()?).cloned();
        let cell = |(cell, memory): &(GuestNumaCell, Option<String>)| GuestNumaCell {
            host_nodes: bound(memory),
            ..cell.clone()
        };
        self.cells.iter().map(cell).collect()
    }

    /// The host nodes that the memory of a guest without cells is bound to.
    pub fn bound_nodes(&self) -> Option<CpuSet> {
        let all = self.bound_memory.values().filter(|_| self.cells.is_empty());
        all.cloned().reduce(|a, b| a.union(&b))
    }

    /// Where its threads may run, if a command before it says so.
    pub fn thread_cpus(&self) -> ThreadCpus {
        let held = self.held_to.as_ref().map(|cpus| ThreadCpus::all(self.vcpus().unwrap_or(1), cpus));
        held.unwrap_or_default()
    }

    /// The guest's architecture, by the program's name: `x86_64`.
    pub fn arch(&self) -> Option<&str> {
        self.program.rsplit('/').next()?.strip_prefix("qemu-system-")
    }

    /// Whether it starts a guest whose CPU QEMU emulates where KVM cannot be had: not one of Xen, and no machine
    /// without a guest, by which libvirt asks what QEMU can do.
    pub fn may_be_emulated(&self) -> bool {
        let of_other = |machine: &String| machine == "none" || machine.starts_with("xen");
        self.accel.as_deref().is_none_or(|accel| matches!(accel, TCG | "kvm" | "unknown"))
            && !self.machine.as_ref().is_some_and(of_other)
    }

    /// Whether QEMU, with no accelerator named, emulates the guest's CPU in software: unless its name ends in `kvm`
    /// (system/vl.c, `configure_accelerators`). `host` as its CPU needs KVM, so such a command line is incomplete.
    fn prefers_tcg(&self) -> bool {
        let needs_kvm = self.cpu_options.last().is_some_and(|cpu| cpu.split(',').next() == Some("host"));
        // KVM exists for these alone.
        let has_kvm = self.arch().is_some_and(|arch| {
            ["x86_64", "i386", "aarch64", "arm", "ppc64", "s390x", "riscv64", "loongarch64"].contains(&arch)
        });
        has_kvm && !needs_kvm && self.may_be_emulated() && self.memory.is_some()
    }

    /// Whether a Hyper-V enlightenment (libvirt's name) is on. `passthrough` turns all on.
    pub fn hyperv_on(&self, name: &str) -> bool {
        let on = |name: &str| self.hyperv.get(name).is_some_and(|value| is_switched_on(value));
        on(name) || on("passthrough")
    }

    /// The number of vCPUs: as written, with those that are plugged in as devices, or the product of the topology;
    /// `None` beyond what KVM allows.
    pub fn vcpus(&self) -> Option<u32> {
        let smp = self.smp;
        let written = smp.cpus.map(|n| n.saturating_add(self.plugged_vcpus)).or(smp.maxcpus).or_else(|| {
            let parts = [smp.sockets, smp.dies, smp.cores, smp.threads];
            let known: Vec<u32> = parts.into_iter().flatten().collect();
            if known.is_empty() { None } else { known.into_iter().try_fold(1u32, u32::checked_mul) }
        });
        written.filter(|n| *n <= limits::VCPUS)
    }
}

/// Parses an argument vector, program first. Never fails: unknown options are ignored.
pub fn parse_argv(argv: &[String]) -> QemuCommand {
    let (program, options) = argv.split_first().map_or((String::new(), argv), |(first, rest)| (first.clone(), rest));
    read(QemuCommand { program, ..QemuCommand::default() }, options)
}

/// Parses options without a program before them.
pub fn parse_options(argv: &[String]) -> QemuCommand {
    read(QemuCommand::default(), argv)
}

fn read(mut command: QemuCommand, argv: &[String]) -> QemuCommand {
    let mut args = argv.iter().take(MAX_ARGS).map(String::as_str).peekable();
    let mut all = Vec::new();
    while let Some(arg) = args.next() {
        match arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) {
            // A bare word is the first disk.
            None if IMAGE.is_match(arg) => all.push(("hda", arg)),
            None => {}
            Some(option) if FLAG.is_match(arg) => all.push((option, "")),
            // An option's value never starts like an option, except `-` alone and negative numbers.
            Some(option) => {
                let value = args.next_if(|next| !next.starts_with('-') || next.len() == 1);
                all.push((option, value.unwrap_or_default()));
            }
        }
    }
    // QEMU makes the drives before the devices that use them.
    all.sort_by_key(|(option, _)| !matches!(*option, "drive" | "blockdev" | "hda" | "hdb" | "hdc" | "hdd"));
    let mut monitors = options::Monitors::default();
    all.iter().for_each(|(option, value)| options::option(&mut command, &mut monitors, option, value));
    let listening = monitors.control.iter().filter_map(|id| monitors.sockets.get(id).cloned());
    command.qmp_sockets.extend(listening);
    command.by_libvirt |= monitors.control.iter().any(|id| id == "charmonitor");
    command.by_libvirt |= command.qmp_sockets.iter().any(|path| path.contains("/libvirt/"));
    options::cards(&mut command, &all);
    command
}

/// Splits a command into words as a POSIX shell does, without expanding anything. A word that the text cuts off within
/// quotes is left out.
pub(crate) fn shell_words(text: &str) -> Vec<String> {
    Shlex::new(&text.replace('\0', " ")).collect()
}

/// Parses pasted text: shell quoting, lines joined by backslashes, environment assignments before the program,
/// libvirt's log of a guest (the last of several starts counts), a line of `ps`.
///
/// # Errors
/// If it contains no QEMU program, or a number that no guest can have.
pub fn parse_text(text: &str) -> Result<QemuCommand> {
    let (argv, held_to) = find(text).context("no QEMU program (qemu-system-*, qemu-kvm) found in the text")?;
    for (option, value) in argv.iter().zip(argv.iter().skip(1)) {
        options::check(option.trim_start_matches('-'), value)?;
    }
    let is_cut = is_cut(text, &argv);
    let mut command = QemuCommand { held_to, is_cut, ..parse_argv(&argv) };
    if command.accel.is_none() && !is_cut && !MAY_USE_KVM.is_match(text) && command.prefers_tcg() {
        command.accel = Some(TCG.to_owned());
        command.defaults.push("accel");
    }
    // A text may lack the monitor and the key: a log was abridged, or `ps` cut the line.
    command.by_libvirt |= command.debug_threads && text.contains("guest=") && text.contains("libvirt");
    Ok(command)
}

/// Whether a command line of a text lacks options: dots or a variable stand for them, or it ends where more has to
/// follow.
fn is_cut(text: &str, argv: &[String]) -> bool {
    let takes_value = |word: &String| word.starts_with('-') && !FLAG.is_match(word);
    let is_options = |word: &String| word.starts_with('$') && word != "$@";
    let stands_alone = |pair: &[String]| matches!(pair, [a, b] if is_options(b) && !takes_value(a));
    let goes_on = |line: &str| line.ends_with('\\') && !line.trim_start().starts_with('#');
    let is_dots = |word: &String| word.contains("...") && !word.contains('/') || word.contains('\u{2026}');
    let ends_open = |word: &String| word.ends_with([',', '=', '\\']) || takes_value(word);
    argv.iter().any(is_dots)
        || argv.windows(2).any(stands_alone)
        || argv.last().is_some_and(ends_open)
        // To a shell a backslash at the end of a script continues nothing.
        || !text.starts_with("#!") && text.trim_end().lines().last().is_some_and(goes_on)
}

/// A text with an option that a wrapped command line may lack, with options in variables, or with omissions.
static MAY_USE_KVM: Pattern = Pattern::new(concat!(
    r#"(?i-u)(?:enable-kvm|accel(?:=|  *)[a-z:]*kvm|(?:^|[\s"'])\$[A-Za-z_{(@*]"#,
    r"|-(?:machine|M|accel)[ =][!-~]*\$|(?:^|\n)[ \t]*(?:#[ -~]*)?(?:\.\.\.|…))",
));

/// Whether a text contains a QEMU command line.
pub fn looks_like(text: &str) -> bool {
    // A domain XML names the program as well.
    !text.trim_start().starts_with('<') && text.contains("qemu") | text.contains("kvm") && find(text).is_some()
}

/// The end of a line, the comments after it, and an option such as `-name` after them. It takes the comments with or
/// without an option: each is looked at once. Mail wraps a long line before the backslash that ends it.
static LINE_END: Pattern =
    Pattern::new(r"(?P<end>(?:(?:\n[ \t]*)?\\[ \t]*)?\n)(?P<comments>(?:[ \t]*#.*\n)*)(?P<option>[ \t]*--?[A-Za-z])?");
/// The end of a line that a backslash continues.
static CONTINUED: Pattern = Pattern::new(r"(?:\n[ \t]*)?\\[ \t]*\n");

/// A comment within a command of several lines: a command substitution that does nothing.
static COMMENT_WITHIN: Pattern = Pattern::new(r"`[ \t]*#[^`\n]*`(?P<end>[ \t]*\\[ \t]*\n)");

/// An option whose value a mail program put on the next line.
static WRAPPED: Pattern = Pattern::new(concat!(
    "(?P<option>[ \\t]--?(?:name|machine|M|m|smp|cpu|device|drive|accel|uuid|blockdev|netdev|chardev|object|mon|boot|",
    "global|rtc|vnc|vga|serial|readconfig|iscsi|spice|smbios|pidfile|numa|fsdev|net|cdrom|kernel|initrd|append|msg|",
    "sandbox|overcommit|display|audiodev|incoming|tpmdev|bios|fw_cfg|k))",
    "[ \\t]*\\n[ \\t]*(?P<value>[^ \\t\\n#-])",
));

/// A value whose next property is on the next line.
static PROPERTY_WRAPPED: Pattern = Pattern::new(r",[ \t]*\n[ \t]*(?P<property>[a-z][a-z0-9_.-]*=)");

/// The lines of a text, with each command in one line.
pub fn joined_lines(text: &str) -> String {
    join_lines(if text.len() > MAX_TEXT { "" } else { text }).unwrap_or_default()
}

/// Joins the lines of a command: those that a backslash continues, those before an option, with comments between, and
/// those between an option and its value.
fn join_lines(text: &str) -> Option<String> {
    let (line_end, continued) = (LINE_END.regex()?, CONTINUED.regex()?);
    let text = COMMENT_WITHIN.regex()?.replace_all(text, "$end");
    let joined = line_end.replace_all(&text, |found: &Captures<'_>| match group(found, "option") {
        Some(option) => format!(" {option}"),
        None => continued.replace_all(&format!("{}{}", &found["end"], &found["comments"]), " ").into_owned(),
    });
    let joined = WRAPPED.regex()?.replace_all(&joined, "$option $value");
    Some(PROPERTY_WRAPPED.regex()?.replace_all(&joined, ",$property").into_owned())
}

/// Widths of a terminal.
const TERMINAL_COLUMNS: RangeInclusive<usize> = 70..=512;

/// A text in which a command that a terminal cut into lines of one width, between words or within them, has one line.
pub fn rejoined(text: &str) -> String {
    let lines: Vec<(&str, usize)> = text.split('\n').map(|line| (line, line.chars().count())).collect();
    let (mut joined, mut width, mut end, mut before) = (String::with_capacity(text.len()), 0, "", None);
    for (at, (line, columns)) in lines.iter().enumerate() {
        // The rows of `ps` and of tables begin with the same word, and can all be cut to one width.
        let goes_on = |line: &str, before| {
            let first = line.split_whitespace().next();
            first.is_some() && first != before && !line.split_whitespace().any(is_program)
        };
        if width > 0 && !goes_on(line, before) {
            (width, end) = (0, "\n");
        }
        if let Some(three @ [_, next @ ..]) = lines.get(at..at + 3).filter(|_| TERMINAL_COLUMNS.contains(columns)) {
            let first = line.split_whitespace().next();
            let widest = three.iter().map(|line| line.1).max().unwrap_or_default();
            let is_full = |(line, columns): &(&str, usize)| *columns + 1 >= widest && !line.ends_with('\\');
            let has_options = |line: &str| line.contains([',', '=']) || line.contains(" -");
            let is_cut = || next.iter().all(|(line, _)| has_options(line) && goes_on(line, first));
            if three.iter().all(is_full) && line.split_whitespace().any(is_program) && is_cut() {
                (width, before) = (widest, first);
            }
        }
        joined.extend([end, line]);
        // A blank at the end of a line is easily lost.
        (width, end) = match width.checked_sub(*columns).filter(|_| width > 0) {
            Some(0) => (width, ""),
            Some(1) => (width, " "),
            _ => (0, "\n"),
        };
    }
    joined
}

/// A variable that a script sets: to an array, a text or a word, at once or piece by piece.
static SETTING: Pattern = Pattern::new(concat!(
    r"(?m)^[ \t]*(?:(?:export|local|declare(?:[ \t]+-[a-z]+)?)[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<add>\+)?=",
    r#"(?:\((?P<array>(?:"[^"]*"|'[^']*'|[^()"'])*)\)|"(?P<text>(?:[^"\\]|\\(?s:.))*)"|'(?P<plain>[^']*)'"#,
    r##"|(?P<word>[^ \t\r\n"'$`\\();&|]+))[ \t\r]*(?:[ \t]#.*)?$"##,
));
/// A variable at the begin of a value.
static FIRST_USE: Pattern = Pattern::new(r#"^[ \t\r\n]*"?\$\{?(?P<name>[A-Za-z0-9_]+)(?:\[[@*]\])?\}?"?"#);
/// The use of a variable.
static USE: Pattern = Pattern::new(concat!(
    r#""\$\{(?P<array>[A-Za-z_][A-Za-z0-9_]*)\[[@*]\]\}""#,
    r"|\$\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)(?:\[[@*]\])?\}|\$(?P<bare>[A-Za-z_][A-Za-z0-9_]*)",
));
/// Settings of variables in one text, and the length of a script and of all values in its commands.
const MAX_SETTINGS: usize = 256;
const MAX_SCRIPT: usize = 64 * 1024;

/// The values of a script's variables, each with all that is added to it. A variable that is set to several values, for
/// two guests or in two branches, is left out.
fn variables(script: &str) -> BTreeMap<&str, String> {
    let mut all: BTreeMap<&str, Option<String>> = BTreeMap::new();
    for set in SETTING.captures_iter(script).take(MAX_SETTINGS) {
        let value = ["array", "text", "plain", "word"].into_iter().find_map(|kind| set.name(kind));
        let (Some(name), Some(value)) = (set.name("name"), value.map(|value| value.as_str())) else { continue };
        let own = FIRST_USE.captures(value).filter(|first| first["name"] == *name.as_str());
        let added = own.as_ref().and_then(|own| value.strip_prefix(&own[0]));
        let lines = added.unwrap_or(value).lines().map(|line| line.split(" #").next().unwrap_or_default().trim());
        let lines = lines.filter(|line| !line.starts_with('#')).map(|line| line.trim_end_matches('\\'));
        let words = lines.collect::<Vec<_>>().join(" ").trim().to_owned();
        match all.get_mut(name.as_str()) {
            None => _ = all.insert(name.as_str(), Some(words)),
            // Empty at first, and filled later, perhaps in one branch only.
            Some(Some(before)) if before.is_empty() => *before = words,
            Some(Some(before)) if added.is_some() || set.name("add").is_some() => before.extend([" ", &words]),
            Some(before) => _ = before.take_if(|before| *before != words),
        }
    }
    // The output of a command is not known.
    let is_known = |value: &String| value.trim().starts_with('-') || !value.contains("$(") && !value.contains('`');
    all.into_iter().filter_map(|(name, value)| Some((name, value.filter(is_known)?))).collect()
}

/// A command with the values of variables, which together take at most `room` bytes.
fn expanded(command: &str, variables: &BTreeMap<&str, String>, room: &mut usize) -> String {
    let Some(uses) = USE.regex() else { return command.to_owned() };
    let mut value = |found: &Captures<'_>| {
        let name = ["array", "braced", "bare"].into_iter().find_map(|kind| group(found, kind)).unwrap_or_default();
        let Some(value) = variables.get(name).filter(|value| value.len() <= *room) else { return found[0].to_owned() };
        *room -= value.len();
        value.clone()
    };
    // Options can use variables in their turn.
    let once = uses.replace_all(command, &mut value);
    uses.replace_all(&once, value).into_owned()
}

/// JSON as `ps` shows it, without the quotes that keep a shell from taking those inside away.
static BARE_JSON: Pattern = Pattern::new(r#"(?P<before>[ \t])(?P<json>\{"[^']*?\})(?P<after>[ \t]|$)"#);

/// A command that begins with a program or link of one's own that is called `qemu`. Elsewhere this is a word.
static BARE_PROGRAM: Pattern = Pattern::new("^[ \t>]*(?:[$#] |sudo |exec )*(?P<command>qemu[ \t]+-.*)");

/// What holds all threads of a QEMU to some CPUs.
static HOLDS: Pattern = Pattern::new(concat!(
    r"(?-u:\b)(?:taskset +(?:-c|--cpu-list)[ =]*|numactl(?: +-[^ ]+)*? +(?:-C *|--physcpubind[ =]))",
    "(?P<cpus>[0-9][0-9,-]*)(?: +[^ ;&|]+){0,4}? +[^ ]*(?:qemu-system-|qemu-kvm|/kvm )",
));

/// A start that failed, with QEMU's whole command line, as Proxmox logs it.
static FAILED_START: Pattern = Pattern::new(concat!(
    "^(?P<before>.{0,200}start failed: )command '(?P<command>.*?)",
    "(?:' failed: (?P<reason>.*))?$",
));

/// The parts of a line about a start that failed: `before`, `command` and `reason`, which a cut line lacks.
pub(crate) fn failed_start(line: &str) -> Option<Captures<'_>> {
    line.contains("start failed: command '").then(|| FAILED_START.captures(line)).flatten()
}

/// The last QEMU command line of a text, and the CPUs that it is held to.
fn find(text: &str) -> Option<(Vec<String>, Option<CpuSet>)> {
    let bare_json = BARE_JSON.regex()?;
    let joined = join_lines(if text.len() > MAX_TEXT { "" } else { text })?;
    let script = Some(text).filter(|text| text.contains('$') && text.len() <= MAX_SCRIPT);
    let (variables, mut room) = (variables(script.unwrap_or_default()), MAX_SCRIPT);
    joined.lines().rev().find_map(|line| {
        // Proxmox's messages put quotes around a command that has some.
        let failed = failed_start(line);
        let line = failed.as_ref().and_then(|failed| group(failed, "command")).unwrap_or(line);
        let may_be = line.contains("qemu") | line.contains("kvm");
        let inner = Some(line).filter(|_| may_be).and_then(out_of_quotes);
        let line = inner.as_deref().unwrap_or(line);
        // `$QEMU -m 4G`
        let is_variable = |word: &str| {
            let name = word.trim_matches(['"', '$', '{', '}']);
            word.contains('$') && variables.get(name).is_some_and(|value| is_program(value))
        };
        let begins = |word: &str| is_program(word) || is_variable(word);
        let before = line.split_inclusive(char::is_whitespace).take_while(|word| !begins(word.trim()));
        let bare = BARE_PROGRAM.captures(line).and_then(|found| group(&found, "command"));
        let command = bare.or_else(|| line.get(before.map(str::len).sum()..))?;
        let command = expanded(command, &variables, &mut room).replace("; ", " ; ");
        let mut argv = shell_words(&bare_json.replace_all(&command, "$before'$json'$after"));
        argv.truncate(argv.iter().position(|word| COMMAND_END.is_match(word)).unwrap_or(argv.len()));
        let held_to = HOLDS.captures(line).and_then(|held| CpuSet::parse(&held["cpus"]).ok());
        argv.iter().skip(1).any(|word| KNOWN_OPTION.is_match(word)).then_some((argv, held_to))
    })
}

/// A command that is an argument of another one: `tmux new "qemu-system-x86_64 -m 4G"`, `su -c 'exec qemu-kvm -m 4G'`.
fn out_of_quotes(line: &str) -> Option<String> {
    let has_program = |word: &String| word.split_whitespace().any(is_program);
    let inner = shell_words(line).into_iter().find(has_program).filter(|word| word.contains(' '))?;
    // An apostrophe of a sentence begins no argument.
    let first = inner.split_whitespace().next()?;
    ['"', '\''].iter().any(|quote| line.contains(&format!(" {quote}{first}"))).then_some(inner)
}

/// Options without a value.
static FLAG: Pattern = Pattern::new(concat!(
    "^--?(?:S|s|snapshot|nographic|nodefaults|no-[a-z-]+|daemonize|only-migratable|full-screen|usb|localtime|",
    "enable-kvm|sdl|curses|mem-prealloc|nodefconfig|preconfig|win2k-hack|rtc-td-hack)$",
));
/// What ends a command's arguments in a shell: a redirection, a pipe or the next command. `<name>` stands for a name.
static COMMAND_END: Pattern = Pattern::new("^(?:[0-9&]?>|<$|<[/<]|[|&;])");
/// The file of a disk.
static IMAGE: Pattern = Pattern::new(r"^[!-+.-<>-~-]+\.(?i-u:qcow2?|img|raw|vmdk|vdi|vhdx?)$");
/// Options of QEMU that other texts are unlikely to contain.
static KNOWN_OPTION: Pattern = Pattern::new(concat!(
    "^--?(?:name|machine|M|m|smp|cpu|device|drive|enable-kvm|accel|uuid|S|nodefaults|hda|cdrom|kernel|display|",
    "nographic|id|blockdev|netdev|bios|boot|vnc|serial|daemonize)$",
));

/// Ends of files that are named after the program.
const NO_PROGRAM: [&str; 4] = [".log", ".conf", ".service", ".1"];

/// Whether a path or name belongs to a QEMU system emulator.
pub fn is_program(word: &str) -> bool {
    let word = word.trim_matches(['\'', '"']);
    let name = word.rsplit('/').next().unwrap_or(word);
    name.starts_with("qemu-system-") && !name.contains(['=', ',', ':'])
        // Builds of an own have a suffix: `/usr/local/bin/qemu-kvm.vfio`.
        || name.starts_with("qemu-kvm.") && word.starts_with('/') && !NO_PROGRAM.iter().any(|end| name.ends_with(end))
        || matches!(name, "qemu-kvm" | "qemu" | "kvm" | "kvm-spice" if word.starts_with('/') || name != "qemu")
}

#[cfg(test)]
mod tests;
