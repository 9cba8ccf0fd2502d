//! A QEMU command line: from `/proc/PID/cmdline`, or as a shell, `ps`, libvirt's log or `qm
//! showcmd` print it.

mod disks;
mod options;

pub use disks::CommandDisk;
pub(crate) use disks::DISK_LIMITS;
pub use options::is_switched_on;

use super::cpu_set::CpuSet;
use super::device_property::DeviceProperty;
use super::domain_xml::GuestNumaCell;
use super::limits;
use super::pattern::Pattern;
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use shlex::Shlex;
use std::collections::BTreeMap;

/// Command lines of guests with hundreds of devices stay below this.
const MAX_TEXT: usize = 1024 * 1024;
/// Maximum number of arguments on a command line.
pub const MAX_ARGS: usize = 20_000;

/// Stands for the number of a Proxmox guest whose configuration does not tell it.
pub const UNKNOWN_PROXMOX_ID: &str = "VMID";

/// The accelerator of QEMU that emulates the guest's CPU in software.
pub const TCG: &str = "tcg";

/// `-smp` as written. Absent parts are `None`; QEMU fills them in.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// The number of sockets, which QEMU computes if it is not written: before version 6.2 of the
    /// machine each CPU that nothing else places is a socket, later a core
    /// (`machine_parse_smp_config`). `None` where that is not known.
    pub fn sockets(&self, machine: Option<(u32, u32)>) -> Option<u32> {
        let inside = [self.dies, self.cores, self.threads]
            .into_iter()
            .flatten()
            .try_fold(1, u32::checked_mul)?;
        if self.sockets.is_some() {
            return self.sockets;
        }
        if self.cores.is_some() || machine? < (6, 2) {
            Some(self.maxcpus.or(self.cpus)? / inside.max(1))
        } else {
            Some(1)
        }
    }
}

/// The options of a QEMU command line. `None` means that the option is absent and QEMU's default
/// applies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Hyper-V enlightenments by libvirt's element names (`stimer`, `stimer_direct`, `vendor_id`),
    /// with `on`, `off` or a value. `hv-time` is [`QemuCommand::hv_time`]; `hv-passthrough` is
    /// `passthrough`.
    pub hyperv: BTreeMap<String, String>,
    /// `hv-time`, libvirt's `hypervclock`.
    pub hv_time: Option<bool>,
    /// `-machine hpet=` or `-no-hpet`. Absent means that a pc machine has one.
    pub hpet: Option<bool>,
    /// `-rtc base=`.
    pub rtc_base: Option<String>,
    /// `kvm-pit.lost_tick_policy`: `delay` or `discard`.
    pub pit_policy: Option<String>,
    /// Paths of the unix sockets of QMP monitors.
    pub qmp_sockets: Vec<String>,
    /// Paths of the unix sockets of programs that serve it: virtiofsd, swtpm, passt.
    pub peer_sockets: Vec<String>,
    /// Kinds of its `-netdev`s that are no tap devices: `vhost-user`, `user`, `passt`, sanitized.
    pub other_netdevs: Vec<String>,
    /// `-name debug-threads=on`: vCPU threads carry their number.
    pub debug_threads: bool,
    /// Ids of the `IOThread`s.
    pub iothreads: Vec<String>,
    /// vCPUs that are plugged in as a `-device`.
    pub plugged_vcpus: u32,
    /// Properties of devices that change how they are served.
    pub device_properties: Vec<DeviceProperty>,
    /// `-numa node`: the guest's cells, each with the id of the memory backend that it uses. Not
    /// recorded.
    #[serde(skip)]
    pub cells: Vec<(GuestNumaCell, Option<String>)>,
    /// Host nodes to which `policy=bind` binds a `memory-backend-*`, by its id. Not recorded.
    #[serde(skip)]
    pub bound_memory: BTreeMap<String, CpuSet>,
    /// The arguments of `-cpu` in order, sanitized. QEMU takes the last one alone (system/vl.c,
    /// `QEMU_OPTION_cpu`).
    pub cpu_options: Vec<String>,
    /// Names of the files that drives use, without their folders, sanitized.
    pub drive_files: Vec<String>,
    /// Disks that have an id.
    pub disks: Vec<CommandDisk>,
    /// Whether libvirt wrote it, by its monitor, its key and its folders. The form of `-name` alone
    /// does not tell: scripts copy it.
    pub by_libvirt: bool,
    /// Settings that nobody wrote down, with their options: QEMU's or Proxmox's defaults. Not
    /// recorded.
    #[serde(skip)]
    pub defaults: Vec<&'static str>,
    /// `-append`: the command line of a kernel that QEMU loads itself, sanitized.
    pub append: Option<String>,
}

impl QemuCommand {
    /// The guest's number in Proxmox, by its monitor (`/var/run/qemu-server/100.qmp`);
    /// [`UNKNOWN_PROXMOX_ID`] where a file does not name it.
    pub fn proxmox_id(&self) -> Option<&str> {
        let mut sockets = self.qmp_sockets.iter();
        let id =
            sockets.find_map(|path| path.split_once("/qemu-server/")?.1.strip_suffix(".qmp"))?;
        let is_number = !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
        if is_number || id == UNKNOWN_PROXMOX_ID {
            Some(id)
        } else {
            None
        }
    }

    /// The guest's NUMA cells, with the host nodes that their memory is bound to.
    pub fn numa_cells(&self) -> Vec<GuestNumaCell> {
        let mut cells = Vec::with_capacity(self.cells.len());
        for (cell, memory) in &self.cells {
            let host_nodes = memory.as_ref().and_then(|id| self.bound_memory.get(id));
            cells.push(GuestNumaCell {
                host_nodes: host_nodes.cloned(),
                ..cell.clone()
            });
        }
        cells
    }

    /// The host nodes that the memory of a guest without cells is bound to.
    pub fn bound_nodes(&self) -> Option<CpuSet> {
        if !self.cells.is_empty() {
            return None;
        }
        let all = self.bound_memory.values().cloned();
        all.reduce(|a, b| a.union(&b))
    }

    /// The guest's architecture, by the program's name: `x86_64`.
    pub fn arch(&self) -> Option<&str> {
        self.program
            .rsplit('/')
            .next()?
            .strip_prefix("qemu-system-")
    }

    /// Whether it starts a guest whose CPU QEMU emulates where KVM cannot be had: not one of Xen,
    /// and no machine without a guest, by which libvirt asks what QEMU can do.
    pub fn may_be_emulated(&self) -> bool {
        let machine = self.machine.as_deref().unwrap_or_default();
        self.accel
            .as_deref()
            .is_none_or(|accel| matches!(accel, TCG | "kvm" | "unknown"))
            && machine != "none"
            && !machine.starts_with("xen")
    }

    /// Whether QEMU, with no accelerator named, emulates the guest's CPU in software: unless its
    /// name ends in `kvm` (system/vl.c, `configure_accelerators`). `host` as its CPU needs KVM, so
    /// such a command line is incomplete.
    fn prefers_tcg(&self) -> bool {
        let needs_kvm = self
            .cpu_options
            .last()
            .is_some_and(|cpu| cpu.split(',').next() == Some("host"));
        // KVM exists for these alone.
        let has_kvm = self.arch().is_some_and(|arch| {
            [
                "x86_64",
                "i386",
                "aarch64",
                "arm",
                "ppc64",
                "s390x",
                "riscv64",
                "loongarch64",
            ]
            .contains(&arch)
        });
        has_kvm && !needs_kvm && self.may_be_emulated() && self.memory.is_some()
    }

    /// Whether a Hyper-V enlightenment (libvirt's name) is on. `passthrough` turns all on.
    pub fn hyperv_on(&self, name: &str) -> bool {
        [name, "passthrough"]
            .iter()
            .filter_map(|name| self.hyperv.get(*name))
            .any(|value| is_switched_on(value))
    }

    /// The number of vCPUs: as written, with those that are plugged in as devices, or the product
    /// of the topology; `None` beyond what KVM allows.
    pub fn vcpus(&self) -> Option<u32> {
        let smp = self.smp;
        let written = smp
            .cpus
            .map(|n| n.saturating_add(self.plugged_vcpus))
            .or(smp.maxcpus)
            .or_else(|| {
                let parts = [smp.sockets, smp.dies, smp.cores, smp.threads];
                let known: Vec<u32> = parts.into_iter().flatten().collect();
                if known.is_empty() {
                    None
                } else {
                    known.into_iter().try_fold(1u32, u32::checked_mul)
                }
            });
        written.filter(|n| *n <= limits::VCPUS)
    }
}

/// Parses an argument vector, program first. Never fails: unknown options are ignored.
pub fn parse_argv(argv: &[String]) -> QemuCommand {
    let Some((program, options)) = argv.split_first() else {
        return QemuCommand::default();
    };
    read_arguments(
        QemuCommand {
            program: program.clone(),
            ..QemuCommand::default()
        },
        options,
    )
}

/// Parses options without a program before them.
pub fn parse_options(argv: &[String]) -> QemuCommand {
    read_arguments(QemuCommand::default(), argv)
}

fn read_arguments(mut command: QemuCommand, argv: &[String]) -> QemuCommand {
    let mut args = argv.iter().take(MAX_ARGS).map(String::as_str).peekable();
    // Options without their dashes, each with its value.
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
    // QEMU makes the drives before the devices that use them. False sorts first.
    all.sort_by_key(|(option, _)| {
        !matches!(
            *option,
            "drive" | "blockdev" | "hda" | "hdb" | "hdc" | "hdd"
        )
    });
    let mut monitors = options::Monitors::default();
    for (option, value) in &all {
        options::read_option(&mut command, &mut monitors, option, value);
    }
    let listening = monitors
        .control
        .iter()
        .filter_map(|id| monitors.sockets.get(id).cloned());
    command.qmp_sockets.extend(listening);
    command.by_libvirt |= monitors.control.iter().any(|id| id == "charmonitor");
    command.by_libvirt |= command
        .qmp_sockets
        .iter()
        .any(|path| path.contains("/libvirt/"));
    options::cards(&mut command, &all);
    command
}

/// Splits a command into words as a POSIX shell does, without expanding anything. A word that the
/// text cuts off within quotes is left out.
pub fn shell_words(text: &str) -> Vec<String> {
    Shlex::new(&text.replace('\0', " ")).collect()
}

/// Parses one command line as a shell takes it (lines joined by backslashes, environment
/// assignments before the program), as libvirt's log has it (the last of several starts counts), as
/// `qm showcmd` or as `ps` prints it.
///
/// # Errors
/// If it contains no QEMU program, or a number that no guest can have.
pub fn parse_text(text: &str) -> Result<QemuCommand> {
    let joined = joined_lines(text);
    let found = joined.lines().rev().find_map(split_line);
    let argv = found
        .context("no QEMU program (qemu-system-*, qemu-kvm) found in the text")?
        .argv;
    for (option, value) in argv.iter().zip(argv.iter().skip(1)) {
        options::check(option.trim_start_matches('-'), value)?;
    }
    let mut command = parse_argv(&argv);
    if command.accel.is_none() && command.prefers_tcg() {
        command.accel = Some(TCG.to_owned());
        command.defaults.push("accel");
    }
    // `ps` may have cut the monitor and the key off.
    command.by_libvirt |=
        command.debug_threads && text.contains("guest=") && text.contains("libvirt");
    Ok(command)
}

/// The lines of a text that hold a command line, as `ps` lists several.
pub fn command_lines(text: &str) -> Vec<String> {
    joined_lines(text)
        .lines()
        .filter(|line| split_line(line).is_some())
        .map(str::to_owned)
        .collect()
}

/// Whether a text begins with a command line: in its first line, or in the second after the heading
/// of libvirt's log or of `ps`.
pub fn looks_like(text: &str) -> bool {
    let joined = joined_lines(text);
    let mut lines = joined.lines().filter(|line| !line.trim().is_empty());
    let Some(first) = lines.next() else {
        return false;
    };
    let is_heading = first.contains(" PID ") || first.contains(": starting up libvirt version");
    begins_with_command(first) || (is_heading && lines.next().is_some_and(begins_with_command))
}

fn begins_with_command(line: &str) -> bool {
    split_line(line).is_some_and(|found| may_come_before(found.before))
}

/// Whether these words may come before the program: assignments, commands that start another one,
/// or the columns of `ps`, which begin with a user and a number.
fn may_come_before(words: &str) -> bool {
    let words: Vec<&str> = words.split_whitespace().collect();
    let is_ps = words.get(1).is_some_and(|pid| pid.parse::<u32>().is_ok());
    words.iter().enumerate().all(|(column, word)| {
        let is_state = word.len() <= 4 && word.starts_with(|c: char| c.is_ascii_uppercase());
        let starts_another =
            ["sudo", "exec", "nohup", "nice", "taskset", "numactl", "env"].contains(word);
        let is_figure = word.contains(|c: char| c.is_ascii_digit() || "=:?-/$#".contains(c));
        starts_another || is_figure || (is_ps && (column == 0 || is_state))
    })
}

/// A text with lines that end in a backslash joined with the next one.
fn joined_lines(text: &str) -> String {
    let text = if text.len() > MAX_TEXT { "" } else { text };
    text.replace("\\\r\n", " ").replace("\\\n", " ")
}

/// A command line in a line of text.
struct FoundCommand<'a> {
    /// The text before the program.
    before: &'a str,
    /// The arguments, the program first.
    argv: Vec<String>,
}

/// Finds a QEMU program in a line.
fn split_line(line: &str) -> Option<FoundCommand<'_>> {
    let words = line.split_inclusive(char::is_whitespace);
    let begin = words
        .take_while(|word| !is_program(word.trim()))
        .map(str::len)
        .sum();
    let (before, command) = line.split_at_checked(begin)?;
    // `ps` prints JSON without the quotes that keep a shell from removing those inside.
    let mut argv = shell_words(
        &BARE_JSON
            .regex()?
            .replace_all(command, "$before'$json'$after"),
    );
    argv.truncate(
        argv.iter()
            .position(|word| COMMAND_END.is_match(word))
            .unwrap_or(argv.len()),
    );
    if argv.iter().skip(1).any(|word| KNOWN_OPTION.is_match(word)) {
        Some(FoundCommand { before, argv })
    } else {
        None
    }
}

/// JSON without quotes around it.
static BARE_JSON: Pattern =
    Pattern::new(r#"(?P<before>[ \t])(?P<json>\{"[^']*?\})(?P<after>[ \t]|$)"#);

/// Options without a value.
static FLAG: Pattern = Pattern::new(concat!(
    "^--?(?:S|s|snapshot|nographic|nodefaults|no-[a-z-]+|daemonize|only-migratable|full-screen|",
    "usb|localtime|enable-kvm|sdl|curses|mem-prealloc|nodefconfig|preconfig|win2k-hack|",
    "rtc-td-hack)$",
));
/// What ends a command's arguments in a shell: a redirection, a pipe or the next command. `<name>`
/// stands for a name.
static COMMAND_END: Pattern = Pattern::new("^(?:[0-9&]?>|<$|<[/<]|[|&;])");
/// The file of a disk.
static IMAGE: Pattern = Pattern::new(r"^[!-+.-<>-~-]+\.(?i-u:qcow2?|img|raw|vmdk|vdi|vhdx?)$");
/// Options of QEMU that other texts are unlikely to contain.
static KNOWN_OPTION: Pattern = Pattern::new(concat!(
    "^--?(?:name|machine|M|m|smp|cpu|device|drive|enable-kvm|accel|uuid|S|nodefaults|hda|cdrom|",
    "kernel|display|nographic|id|blockdev|netdev|bios|boot|vnc|serial|daemonize)$",
));

/// Ends of files that are named after the program.
const NO_PROGRAM: [&str; 4] = [".log", ".conf", ".service", ".1"];

/// Whether a path or name belongs to a QEMU system emulator.
pub fn is_program(word: &str) -> bool {
    let word = word.trim_matches(['\'', '"']);
    let name = word.rsplit('/').next().unwrap_or(word);
    if name.starts_with("qemu-system-") {
        return !name.contains(['=', ',', ':']);
    }
    let is_path = word.starts_with('/');
    // Builds of an own have a suffix: `/usr/local/bin/qemu-kvm.vfio`.
    if name.starts_with("qemu-kvm.") {
        return is_path && !NO_PROGRAM.iter().any(|end| name.ends_with(end));
    }
    matches!(name, "qemu-kvm" | "kvm" | "kvm-spice") || (name == "qemu" && is_path)
}

#[cfg(test)]
mod tests;
