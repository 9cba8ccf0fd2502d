//! The configuration of a QEMU guest under Proxmox VE: `/etc/pve/qemu-server/100.conf`, as `qm config 100` prints it
//! too (qm.conf(5)). It becomes the options that Proxmox starts QEMU with (its PVE/QemuServer.pm and CPUConfig.pm).

use super::VmmConfig;
use crate::cmdline::{parse_argv, shell_words};
use crate::cpu_set::CpuSet;
use crate::sanitize;
use crate::thread_cpus::ThreadCpus;
use crate::unread::UnreadLines;
use std::collections::BTreeMap;

/// Lines of a text that are read.
const MAX_LINES: usize = 200_000;

/// Keys of a guest's configuration that hardly occur elsewhere in the form `key: value`.
const TELLING: &[&str] =
    &["ostype", "scsihw", "vmgenid", "smbios1", "bootdisk", "cores", "sockets", "numa", "onboot", "balloon"];

/// Further keys of a guest's configuration, which other texts have too.
const OTHER_KEYS: &[&str] = &[
    "acpi",
    "affinity",
    "agent",
    "arch",
    "args",
    "audio0",
    "autostart",
    "bios",
    "boot",
    "cpu",
    "cpulimit",
    "cpuunits",
    "description",
    "digest",
    "efidisk0",
    "freeze",
    "hookscript",
    "hotplug",
    "hugepages",
    "ivshmem",
    "keephugepages",
    "keyboard",
    "kvm",
    "localtime",
    "lock",
    "machine",
    "memory",
    "meta",
    "name",
    "parent",
    "protection",
    "rng0",
    "serial0",
    "shares",
    "startup",
    "tablet",
    "tags",
    "template",
    "tpmstate0",
    "vcpus",
    "vga",
    "vmstatestorage",
    "watchdog",
];

/// Kinds of devices: the key is followed by a number.
const DEVICES: &[(&str, &str)] = &[
    ("virtio", "virtio-blk-pci"),
    ("scsi", "scsi-hd"),
    ("sata", "ide-hd"),
    ("ide", "ide-hd"),
    ("hostpci", "vfio-pci"),
    ("usb", "usb-host"),
];

/// Reads the configurations of a text: one, or several as `qm config` and `cat` print them behind each other.
pub(super) fn parse(text: &str) -> Vec<VmmConfig> {
    let mut reader = ConfigReader::default();
    for (number, line) in text.lines().take(MAX_LINES).enumerate() {
        reader.line(number + 1, line.trim());
    }
    reader.end_part();
    reader.end_config();
    reader.found
}

/// Splits a text into configurations. Proxmox writes keys in order, so a key that sorts before the last one can begin
/// the next configuration, as can any line that is none; it does if the part that it begins repeats a key.
#[derive(Default)]
struct ConfigReader<'a> {
    keys: BTreeMap<&'a str, &'a str>,
    unread: UnreadLines,
    /// The part since the last place where a configuration could begin.
    part: BTreeMap<&'a str, &'a str>,
    part_unread: Vec<(usize, &'a str)>,
    last: &'a str,
    /// Within the section of a snapshot, which is not the present configuration.
    skips: bool,
    found: Vec<VmmConfig>,
}

impl<'a> ConfigReader<'a> {
    fn line(&mut self, number: usize, line: &'a str) {
        let pair = line.split_once(':').filter(|(key, _)| is_key(key));
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
                // `root@pve:~# qm config 101` begins anew; a note does not.
                self.skips &= !line.contains("qm config");
            }
            None => self.part_unread.push((number, line)),
        }
    }

    /// Adds the part to the configuration, or begins the next one with it.
    fn end_part(&mut self) {
        let part = std::mem::take(&mut self.part);
        if !part.keys().any(|key| is_of_config(key)) {
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
        if self.found.len() < super::MAX_GUESTS {
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
    let argv = argv(keys, counts, config.implausible.is_empty());
    config.command = parse_argv(&argv);
    for key in keys.keys() {
        let kind = key.trim_end_matches(|c: char| c.is_ascii_digit());
        let device = DEVICES.iter().find(|(name, _)| *name == kind && key.len() > kind.len());
        if let Some((_, driver)) = device {
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
        // Proxmox starts QEMU under taskset: the mask is that of every thread.
        config.threads = ThreadCpus::all(config.command.vcpus().unwrap_or(1), &cpus);
    }
    Some(config)
}

/// A command behind the prompt of a shell: `root@pve:~# lscpu`.
fn is_prompt(line: &str) -> bool {
    let prompt = line.split_once(['#', '$']).map_or("", |(prompt, _)| prompt);
    prompt.contains('@') && prompt.len() < 80 && !prompt.contains(": ")
}

/// Whether a key is one of a guest's configuration.
fn is_of_config(key: &str) -> bool {
    let kind = key.trim_end_matches(|c: char| c.is_ascii_digit());
    let numbered = kind.len() < key.len();
    TELLING.contains(&key)
        || OTHER_KEYS.contains(&key)
        || numbered && (DEVICES.iter().any(|(name, _)| *name == kind) || ["net", "numa", "unused"].contains(&kind))
}

fn is_key(key: &str) -> bool {
    !key.is_empty() && key.len() <= 40 && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// The options of QEMU that the keys stand for; those of `args` come last, as Proxmox appends them.
///
/// `counts`: sockets, cores in a socket, vCPUs, as far as they are written; false for `counted`: one of them is none.
fn argv(keys: &BTreeMap<&str, &str>, counts: [Option<u32>; 3], counted: bool) -> Vec<String> {
    let get = |key: &str| keys.get(key).copied();
    let mut argv = vec!["/usr/bin/kvm".to_owned()];
    let mut add = |option: &str, value: String| argv.extend([option.to_owned(), value]);
    if let Some(name) = get("name") {
        add("-name", format!("{},debug-threads=on", name.replace(',', ",,")));
    }
    if let Some(uuid) = get("smbios1").and_then(|text| text.split(',').find_map(|part| part.strip_prefix("uuid="))) {
        add("-uuid", uuid.to_owned());
    }
    let [sockets, cores, vcpus] = counts;
    if counted {
        let (sockets, cores) = (sockets.unwrap_or(1), cores.unwrap_or(1));
        let most = sockets.saturating_mul(cores);
        let vcpus = vcpus.unwrap_or(most);
        add("-smp", format!("{vcpus},sockets={sockets},cores={cores},maxcpus={most}"));
    }
    if let Some(memory) = get("memory").map(|text| text.trim_start_matches("current=")) {
        add("-m", memory.split(',').next().unwrap_or_default().to_owned());
    }
    // Since version 8 the default machine of Windows is pinned, of others it is the newest.
    let machine =
        get("machine").map_or("pc", |text| text.split(',').next().unwrap_or(text).trim_start_matches("type="));
    let windows = windows_version(get("ostype").unwrap_or_default());
    // Proxmox switches the HPET off for Windows since Vista.
    let hpet = if windows.is_some_and(|version| version >= 6) { ",hpet=off" } else { "" };
    add("-machine", format!("{machine},accel=kvm{hpet}"));
    add("-cpu", cpu(keys, windows));
    let local = get("localtime").map_or(windows.is_some(), |on| on == "1");
    let drift = if windows.is_some() { ",driftfix=slew" } else { "" };
    add("-rtc", format!("base={}{drift}", if local { "localtime" } else { "utc" }));
    if windows.is_some() {
        add("-global", "kvm-pit.lost_tick_policy=discard".to_owned());
    }
    if get("bios") == Some("ovmf") {
        add("-bios", "OVMF".to_owned());
    }
    if get("hugepages").is_some() {
        add("-mem-path", "/run/hugepages/kvm".to_owned());
    }
    if keys.keys().any(|key| key.strip_prefix("serial").is_some_and(is_number)) {
        add("-serial", "pty".to_owned());
    }
    let io = keys.values().filter(|value| value.split(',').any(|part| part == "iothread=1"));
    for (id, _) in io.enumerate().take(64) {
        add("-object", format!("iothread,id=iothread-{id}"));
    }
    // Without `numa: 1` Proxmox ignores the cells.
    let cells = keys.iter().filter(|_| get("numa") == Some("1")).filter_map(|(key, value)| {
        let id = key.strip_prefix("numa").filter(|id| is_number(id))?;
        Some((id, value))
    });
    for (id, value) in cells {
        argv.extend(cell(id, value));
    }
    argv.extend(shell_words(get("args").unwrap_or_default()));
    argv
}

/// The options of a cell (PVE/QemuServer/Memory.pm): `cpus=0-3;8,hostnodes=0-1,memory=4096,policy=bind`.
fn cell(id: &str, value: &str) -> Vec<String> {
    let part = |name: &str| value.split(',').find_map(|part| part.split_once('=').filter(|(key, _)| *key == name));
    let list = |name: &str, option: &str| -> String {
        let parts = part(name).into_iter().flat_map(|(_, list)| list.split(';'));
        parts.flat_map(|part| [",", option, "=", part]).collect()
    };
    let policy = part("policy").map_or("preferred", |(_, policy)| policy);
    let size = part("memory").map_or("0", |(_, size)| size);
    let nodes = list("hostnodes", "host-nodes");
    let policy = if nodes.is_empty() { String::new() } else { format!(",policy={policy}") };
    vec![
        "-object".into(),
        format!("memory-backend-ram,id=ram-node{id},size={size}M{nodes}{policy}"),
        "-numa".into(),
        format!("node,nodeid={id}{},memdev=ram-node{id}", list("cpus", "cpus")),
    ]
}

/// Proxmox's version number of a Windows (`windows_version` in PVE/QemuServer/Helpers.pm).
fn windows_version(ostype: &str) -> Option<u32> {
    match ostype {
        "wxp" | "w2k" | "w2k3" => Some(5),
        "wvista" | "w2k8" => Some(6),
        "win7" => Some(7),
        "win8" => Some(8),
        "win10" => Some(10),
        "win11" => Some(11),
        _ => None,
    }
}

/// The CPU with its flags and the enlightenments that Proxmox adds for Windows (`get_hyperv_enlightenments`).
fn cpu(keys: &BTreeMap<&str, &str>, windows: Option<u32>) -> String {
    let text = keys.get("cpu").copied().unwrap_or("x86-64-v2-AES");
    let model = text.split(',').next().unwrap_or_default();
    let mut cpu = model.trim_start_matches("cputype=").to_owned();
    let early_uefi = keys.get("bios") == Some(&"ovmf") && windows.is_some_and(|version| version < 8);
    if windows.is_some_and(|version| version >= 6) && !early_uefi {
        cpu.push_str(",hv_spinlocks=0x1fff,hv_vapic,hv_time,hv_reset,hv_vpindex,hv_runtime");
        if windows >= Some(7) {
            cpu.push_str(",hv_relaxed,hv_synic,hv_stimer,hv_ipi");
        }
    }
    for part in text.split(',').skip(1) {
        match part.split_once('=') {
            // `flags=+pcid;-spec-ctrl`
            Some(("flags", flags)) => flags.split(';').for_each(|flag| {
                let enlightenment = flag.trim_start_matches(['+', '-']).strip_prefix("hv-");
                match enlightenment {
                    Some(name) => {
                        let on = if flag.starts_with('-') { "off" } else { "on" };
                        cpu.push_str(&format!(",hv-{name}={on}"));
                    }
                    None => cpu.push_str(&format!(",{flag}")),
                }
            }),
            Some(("hidden", "1")) => cpu.push_str(",kvm=off"),
            Some(("hv-vendor-id", id)) => cpu.push_str(&format!(",hv_vendor_id={id}")),
            _ => {}
        }
    }
    cpu
}
