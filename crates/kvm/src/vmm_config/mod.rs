//! The configuration of a QEMU guest under Proxmox VE: `/etc/pve/qemu-server/100.conf`, as `qm config 100` prints it
//! too (qm.conf(5)). It is read as the command line with which Proxmox starts QEMU.

mod options;

use super::cmdline::{QemuCommand, parse_argv};
use super::cpu_set::CpuSet;
use super::limits::{self, Implausible};
use super::pattern::Pattern;
use super::sanitize;
use super::thread_cpus::ThreadCpus;
use super::unread::UnreadLines;
use std::collections::BTreeMap;

/// Length of a text that is read.
const MAX_TEXT: usize = 4 * 1024 * 1024;
/// Lines of a text that are read.
const MAX_LINES: usize = 200_000;
/// Guests of one text.
const MAX_GUESTS: usize = 1024;
/// Devices of a guest.
const MAX_DEVICES: usize = 1024;

/// Keys that hardly occur in other texts in the form `key: value`. A configuration has at least three of them.
const TELLING: &[&str] =
    &["ostype", "scsihw", "vmgenid", "smbios1", "bootdisk", "cores", "sockets", "numa", "onboot", "balloon"];

/// The keys of a guest's configuration.
static KEY: Pattern = Pattern::new(
    r"(?x)^(?:ostype|scsihw|vmgenid|smbios1|bootdisk|cores|sockets|numa|onboot|balloon
    |acpi|affinity|agent|arch|args|audio0|autostart|bios|boot|cpu|cpulimit|cpuunits|description|digest|efidisk0|freeze
    |hookscript|hotplug|hugepages|ivshmem|keephugepages|keyboard|kvm|localtime|lock|machine|memory|meta|name|parent
    |protection|rng0|serial0|shares|startup|tablet|tags|template|tpmstate0|vcpus|vga|vmstatestorage|watchdog
    |(?:virtio|scsi|sata|ide|hostpci|usb|net|numa|unused)[0-9]+)$",
);
/// The text before a colon that can be a key.
static NAME: Pattern = Pattern::new("^[A-Za-z0-9_-]{1,40}$");

/// Kinds of devices, which a number follows in the key, and QEMU's devices.
const DEVICES: &[(&str, &str)] = &[
    ("virtio", "virtio-blk-pci"),
    ("scsi", "scsi-hd"),
    ("sata", "ide-hd"),
    ("ide", "ide-hd"),
    ("hostpci", "vfio-pci"),
    ("usb", "usb-host"),
];

/// The configuration of one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmmConfig {
    /// The command line that it stands for.
    pub command: QemuCommand,
    /// Where its threads may run.
    pub threads: ThreadCpus,
    /// The guest's operating system as Proxmox names it: `win11`, `l26`.
    pub guest_os: Option<String>,
    /// Lines that could not be read.
    pub unread: UnreadLines,
    /// Numbers that no guest can have. They are left out.
    pub implausible: Vec<Implausible>,
}

impl VmmConfig {
    /// The number of vCPUs or of a part of the topology that `key` has.
    fn count(&mut self, key: &'static str, written: Option<&str>) -> Option<u32> {
        let written = written?.trim();
        if limits::beyond(written.trim_start_matches('-'), u64::from(limits::VCPUS)) {
            let (what, value) = (key.to_owned(), sanitize(written, 40));
            self.implausible.push(Implausible { what, value, most: u64::from(limits::VCPUS) });
            return None;
        }
        written.parse().ok().filter(|n| *n > 0)
    }

    /// Notes on the numbers that are left out, each with its file and line.
    pub fn notes(&self, file: &str, text: &str) -> Vec<String> {
        let place = |bad: &Implausible| {
            let line = text.lines().position(|line| line.contains(&bad.value) && line.contains(&bad.what));
            line.map_or_else(|| file.to_owned(), |at| format!("{file}:{}", at + 1))
        };
        self.implausible.iter().map(|bad| format!("{}: {bad}; it is left out", place(bad))).collect()
    }

    fn device(&mut self, driver: &str, id: &str) {
        if self.command.devices.len() < MAX_DEVICES {
            self.command.devices.push((driver.to_owned(), sanitize(id, 80)));
        }
    }
}

/// Whether a text holds a configuration.
pub fn looks_like(text: &str) -> bool {
    !parse(text).is_empty()
}

/// Reads the configurations of a text: one, or several that `qm config` or `cat` printed in a row.
pub fn parse(text: &str) -> Vec<VmmConfig> {
    if text.len() > MAX_TEXT {
        return Vec::new();
    }
    let mut reader = ConfigReader::default();
    for (number, line) in text.lines().take(MAX_LINES).enumerate() {
        reader.line(number + 1, line.trim());
    }
    reader.end_part();
    reader.end_config();
    reader.found
}

/// Splits a text into configurations. Proxmox writes keys in order, so a key that sorts before the previous one may
/// begin the next configuration, and so may a line without a key. It does if the part that it begins repeats a key.
#[derive(Default)]
struct ConfigReader<'a> {
    keys: BTreeMap<&'a str, &'a str>,
    unread: UnreadLines,
    /// The part since the last place where a configuration could begin.
    part: BTreeMap<&'a str, &'a str>,
    part_unread: Vec<(usize, &'a str)>,
    last: &'a str,
    /// Whether the lines belong to a snapshot, which is not the current configuration.
    skips: bool,
    found: Vec<VmmConfig>,
}

impl<'a> ConfigReader<'a> {
    fn line(&mut self, number: usize, line: &'a str) {
        let pair = line.split_once(':').filter(|(key, _)| NAME.is_match(key));
        match pair {
            Some((key, value)) => {
                if key < self.last {
                    self.end_part();
                    self.skips = false;
                }
                self.last = key;
                if !self.skips {
                    self.part.insert(key, value.trim());
                }
            }
            None if line.starts_with('[') && line.ends_with(']') => {
                self.end_part();
                (self.skips, self.last) = (true, "");
            }
            None if line.is_empty() => self.end_part(),
            None if line.starts_with('#') || is_prompt(line) => {
                self.end_part();
                // `root@pve:~# qm config 101` begins a configuration; a note does not.
                self.skips &= !line.contains("qm config");
            }
            None => self.part_unread.push((number, line)),
        }
    }

    /// Adds the part to the configuration, or begins the next one with it.
    fn end_part(&mut self) {
        let part = std::mem::take(&mut self.part);
        if !part.keys().any(|key| KEY.is_match(key)) {
            // Another output of the same paste.
            self.part_unread.clear();
            return;
        }
        if part.keys().any(|key| self.keys.contains_key(key)) {
            self.end_config();
        }
        let unread = std::mem::take(&mut self.part_unread);
        if !part.is_empty() {
            unread.into_iter().for_each(|(number, line)| self.unread.add(number, line));
        }
        self.keys.extend(part);
    }

    fn end_config(&mut self) {
        let (keys, unread) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.unread));
        if self.found.len() < MAX_GUESTS {
            self.found.extend(config(&keys, unread));
        }
    }
}

fn config(keys: &BTreeMap<&str, &str>, unread: UnreadLines) -> Option<VmmConfig> {
    let telling = TELLING.iter().filter(|key| keys.contains_key(*key)).count();
    if telling < 3 || unread.count > keys.len() {
        return None;
    }
    let mut config = VmmConfig { unread, ..VmmConfig::default() };
    let counts = ["sockets", "cores", "vcpus"].map(|key| config.count(key, keys.get(key).copied()));
    let argv = options::argv(keys, counts, config.implausible.is_empty());
    config.command = parse_argv(&argv);
    for key in keys.keys() {
        let kind = key.trim_end_matches(|c: char| c.is_ascii_digit());
        if let Some((_, driver)) = DEVICES.iter().find(|(name, _)| *name == kind && key.len() > kind.len()) {
            config.device(driver, key);
        }
    }
    for (key, value) in keys.iter().filter(|(key, _)| key.strip_prefix("net").is_some_and(is_number)) {
        // `virtio=BC:24:11:00:00:01,bridge=vmbr0`: the model is the first key.
        let model = value.split(['=', ',']).next().unwrap_or_default();
        let driver = if model == "virtio" { "virtio-net-pci" } else { model };
        config.device(&sanitize(driver, 40), key);
        config.command.vhost |= model == "virtio";
    }
    config.guest_os = keys.get("ostype").map(|name| sanitize(name, 40)).filter(|name| name != "other");
    let affinity = keys.get("affinity").and_then(|list| CpuSet::parse(list).ok()).filter(|cpus| !cpus.is_empty());
    if let Some(cpus) = affinity {
        // Proxmox starts QEMU under taskset, so all of its threads have this mask.
        config.threads = ThreadCpus::all(config.command.vcpus().unwrap_or(1), &cpus);
    }
    Some(config)
}

/// Whether a line is a command after the prompt of a shell: `root@pve:~# lscpu`.
fn is_prompt(line: &str) -> bool {
    let prompt = line.split_once(['#', '$']).map_or("", |(prompt, _)| prompt);
    prompt.contains('@') && prompt.len() < 80 && !prompt.contains(": ")
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests;
