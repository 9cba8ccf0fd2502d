//! The configuration of a QEMU guest under Proxmox VE: `/etc/pve/qemu-server/100.conf`, as `qm config 100` prints it
//! too (qm.conf(5)). It is read as the command line with which Proxmox starts QEMU (its PVE/QemuServer.pm,
//! PVE/QemuServer/Memory.pm and CPUConfig.pm).

use super::cmdline::{QemuCommand, parse_argv, shell_words};
use super::cpu_set::CpuSet;
use super::pattern::{Pattern, group};
use super::unread::UnreadLines;
use super::{limits, sanitize};
use std::collections::{BTreeMap, BTreeSet};

/// The number of a guest whose configuration does not name it.
pub const UNKNOWN_ID: &str = "VMID";
/// Length of a text that is read.
const MAX_TEXT: usize = 4 * 1024 * 1024;
/// Lines of a text that are read.
const MAX_LINES: usize = 200_000;
/// Guests of one text.
const MAX_GUESTS: usize = 1024;

/// The keys of a guest's configuration. At least three of its keys hardly occur in other texts.
static KEY: Pattern = Pattern::new(
    r"(?x)^(?:(?P<telling>ostype|scsihw|vmgenid|smbios1|bootdisk|cores|sockets|numa|onboot|balloon|affinity
    |(?:virtio|scsi|sata|ide|hostpci|net|numa)[0-9]+)
    |acpi|agent|arch|args|audio0|autostart|bios|boot|cpu|cpulimit|cpuunits|description|digest|efidisk0|freeze
    |hookscript|hotplug|hugepages|ivshmem|keephugepages|keyboard|kvm|localtime|lock|machine|memory|meta|name|parent
    |protection|rng0|serial0|shares|startup|tablet|tags|template|tpmstate0|vcpus|vga|vmstatestorage|watchdog
    |(?:usb|unused)[0-9]+)$",
);
/// The CPU of a guest without `cpu` (`get_default_cpu_type`). Proxmox's screens write another default down.
const DEFAULT_CPU: &str = "kvm64";
/// The SCSI controller of a guest without `scsihw`.
const DEFAULT_SCSIHW: &str = "lsi";
/// The text before a colon that can be a key.
static NAME: Pattern = Pattern::new("^[A-Za-z0-9_-]{1,40}$");
/// Keys of a container's configuration (pct.conf(5)), whose other keys a guest has as well.
const OF_CONTAINERS: &[&str] = &["hostname", "rootfs", "swap", "unprivileged"];
/// A disk of a guest.
static DISK: Pattern = Pattern::new("^(?:virtio|scsi|sata|ide)[0-9]{1,2}$");
/// The guest's number in the name of one of its volumes: `local-lvm:vm-100-disk-0`.
static VOLUME: Pattern = Pattern::new("[:/](?:vm|base)-(?P<id>[0-9]{1,9})-[0-9A-Za-z._-]*$");
/// What a note says of a hook script or of the host's kernel that changes where threads run.
static PLACEMENT: Pattern = Pattern::new("isolcpus=|cpuset|taskset|nohz_full=|assign_interrupts");

/// The configuration of one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmmConfig {
    /// The command line that it stands for.
    pub command: QemuCommand,
    /// The guest's operating system as Proxmox names it: `win11`, `l26`.
    pub guest_os: Option<String>,
    /// Lines that could not be read, or have a number that no guest can have.
    pub unread: UnreadLines,
}

impl VmmConfig {
    /// Takes the guest's number, which the name of its file tells: a disk may be another guest's (a clone, a replica).
    /// Proxmox numbers guests from 100 on.
    pub fn set_number(&mut self, id: &str) {
        if (3..10).contains(&id.len()) {
            let own = |socket: &&mut String| socket.starts_with("/var/run/qemu-server/");
            let sockets = self.command.qmp_sockets.iter_mut().filter(own);
            sockets.for_each(|socket| *socket = format!("/var/run/qemu-server/{id}.qmp"));
        }
    }
}

/// Whether a text holds a configuration.
pub fn looks_like(text: &str) -> bool {
    !parse(text).is_empty()
}

/// A configuration, or a part of one: values with their lines by key, and the lines without a key.
#[derive(Default)]
struct Part<'a> {
    keys: BTreeMap<&'a str, (usize, &'a str)>,
    unread: Vec<(usize, &'a str)>,
}

/// Reads the configurations of a text: one, or several that `qm config` or `cat` printed in a row.
pub fn parse(text: &str) -> Vec<VmmConfig> {
    let mut all: Vec<Part> = Vec::new();
    // Another output of the same paste has none of the keys.
    for part in parts(text).into_iter().filter(|part| part.keys.keys().any(|key| KEY.is_match(key))) {
        match all.last_mut() {
            Some(last) if !part.keys.keys().any(|key| last.keys.contains_key(key)) => {
                last.keys.extend(part.keys);
                last.unread.extend(part.unread);
            }
            _ => all.push(part),
        }
    }
    all.iter().filter_map(config).take(MAX_GUESTS).collect()
}

/// The parts of a text. Proxmox writes keys in order, so a key that sorts before the previous one may begin the next
/// configuration. It does if the part that it begins repeats a key.
fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = vec![Part::default()];
    let mut last = "";
    // Whether the lines belong to a snapshot, which is not the current configuration.
    let mut skips = false;
    let text = if text.len() > MAX_TEXT { "" } else { text };
    for (number, line) in text.lines().map(str::trim).enumerate().take(MAX_LINES) {
        // `kvm:` also begins lines of logs.
        let is_pair = |(key, value): &(&str, &str)| {
            let first = value.split_whitespace().next();
            NAME.is_match(key) && (*key != "kvm" || matches!(first, Some("0" | "1")))
        };
        let pair = line.split_once(':').filter(is_pair);
        if pair.is_some_and(|(key, _)| key < last) {
            parts.push(Part::default());
        }
        let Some(part) = parts.last_mut() else { continue };
        if let Some((key, value)) = pair {
            skips &= key >= last;
            last = key;
            // Admins end a line with a note; a `#` can be part of these two values.
            let end = value.find(" #").filter(|_| !matches!(key, "args" | "description")).unwrap_or(value.len());
            if !skips {
                part.keys.insert(key, (number + 1, value[..end].trim()));
            }
        } else if line.starts_with('[') && line.ends_with(']') {
            (skips, last) = (true, "");
        } else if !line.is_empty() && (!line.contains('#') || PLACEMENT.is_match(line)) {
            // `#` begins a note or ends a prompt.
            part.unread.push((number + 1, line));
        }
    }
    parts
}

fn config(part: &Part) -> Option<VmmConfig> {
    let telling = part.keys.keys().filter(|key| KEY.captures(key).is_some_and(|key| key.name("telling").is_some()));
    // A container's network card has a name of its own and no model.
    let is_container = part.keys.iter().any(|(key, (_, value))| {
        OF_CONTAINERS.contains(key) || key.starts_with("net") && value.split(',').any(|part| part.starts_with("name="))
    });
    // Text around a configuration does not belong to it.
    let lines = || part.keys.iter().filter(|(key, _)| KEY.is_match(key)).map(|(_, (number, _))| *number);
    let (first, last) = (lines().min()?, lines().max()?);
    let within = |(number, line): &&(usize, &str)| {
        (first..=last + 1).contains(number) && !line.starts_with("```") || line.starts_with('#')
    };
    let unread: Vec<_> = part.unread.iter().filter(within).collect();
    if telling.count() < 3 || is_container || unread.len() > part.keys.len() {
        return None;
    }
    let mut config = VmmConfig::default();
    unread.iter().for_each(|(number, line)| config.unread.add(*number, line));
    let mut counted = true;
    for what in ["sockets", "cores", "vcpus"] {
        if let Some((number, value)) = part.keys.get(what).filter(|(_, n)| limits::beyond(n, limits::VCPUS.into())) {
            config.unread.add(*number, &format!("{what}: {value}"));
            counted = false;
        }
    }
    let keys: BTreeMap<&str, &str> = part.keys.iter().map(|(key, (_, value))| (*key, *value)).collect();
    let is_whole = is_whole(&keys) && !unread.iter().any(|(_, line)| line.contains("..") || line.contains('\u{2026}'));
    config.command = parse_argv(&argv(&keys, counted, is_whole));
    config.command.is_cut = !is_whole;
    let is_default = |key: &&str| is_whole && !keys.contains_key(key);
    config.command.defaults = ["cpu", "scsihw"].into_iter().filter(is_default).collect();
    // `args` can have a CPU as well.
    if config.command.cpu_options.len() > 1 {
        config.command.defaults.retain(|key| *key != "cpu");
    }
    let device = keys.keys().find(|key| key.starts_with("hostpci"));
    let least = keys.get("balloon").and_then(|least| least.parse().ok()).filter(|least| *least > 0);
    config.command.ballooned = device.zip(least).map(|(device, least)| ((*device).to_owned(), least));
    config.guest_os = keys.get("ostype").map(|name| sanitize(name, 40)).filter(|name| name != "other");
    let affinity = keys.get("affinity").and_then(|list| CpuSet::parse(list).ok());
    // Proxmox starts QEMU under taskset, so all of its threads have this mask.
    config.command.held_to = affinity.filter(|cpus| !cpus.is_empty());
    Some(config)
}

/// Whether a configuration has the keys that Proxmox writes for each guest, so that what it lacks is the default. Keys
/// that identify the guest are often taken out.
fn is_whole(keys: &BTreeMap<&str, &str>) -> bool {
    let each: [&[&str]; 4] =
        [&["boot", "bootdisk"], &["memory"], &["name"], &["smbios1", "vmgenid", "sockets", "scsihw"]];
    each.iter().all(|any| any.iter().any(|key| keys.contains_key(key)))
}

/// QEMU's command line for a configuration, without counts of vCPUs if they are implausible; the options of `args` come
/// last, as Proxmox appends them.
fn argv(keys: &BTreeMap<&str, &str>, counted: bool, is_whole: bool) -> Vec<String> {
    let get = |key: &str| keys.get(key).copied();
    let first = |text: &str| text.split(',').next().unwrap_or_default().to_owned();
    // On Proxmox's hosts, which are x86 machines, QEMU emulates an Arm guest.
    let is_arm = get("arch") == Some("aarch64");
    let program = if is_arm { "/usr/bin/qemu-system-aarch64" } else { "/usr/bin/kvm" };
    let mut argv = vec![program.to_owned(), "-nodefaults".to_owned()];
    let mut add = |option: &str, value: String| argv.extend([option.to_owned(), value]);
    if let Some(name) = get("name") {
        add("-name", format!("{},debug-threads=on", name.replace(',', ",,")));
    }
    if let Some(uuid) = get("smbios1").and_then(|text| text.split(',').find_map(|part| part.strip_prefix("uuid="))) {
        add("-uuid", uuid.to_owned());
    }
    if counted {
        let count = |key: &str| get(key)?.parse::<u32>().ok().filter(|n| *n > 0);
        let (sockets, cores) = (count("sockets").unwrap_or(1), count("cores").unwrap_or(1));
        let most = sockets.saturating_mul(cores);
        let vcpus = count("vcpus").unwrap_or(most);
        add("-smp", format!("{vcpus},sockets={sockets},cores={cores},maxcpus={most}"));
    }
    if let Some(memory) = get("memory") {
        add("-m", first(memory.trim_start_matches("current=")));
    }
    // Since version 8 the default machine of Windows is pinned, of others it is the newest.
    let default = if is_arm { "virt" } else { "pc" };
    let machine = get("machine").map_or(default.to_owned(), |text| first(text.trim_start_matches("type=")));
    let windows = windows_version(get("ostype").unwrap_or_default());
    // Proxmox switches the HPET off for Windows since Vista.
    let hpet = if windows.is_some_and(|version| version >= 6) { ",hpet=off" } else { "" };
    let accel = if get("kvm") == Some("0") || is_arm { "tcg" } else { "kvm" };
    add("-machine", format!("{machine},accel={accel}{hpet}"));
    let cpu = cpu(keys, windows, is_whole && !is_arm);
    if !cpu.is_empty() {
        add("-cpu", cpu);
    }
    let local = get("localtime").map_or(windows.is_some(), |on| on == "1");
    let drift = if windows.is_some() { ",driftfix=slew" } else { "" };
    add("-rtc", format!("base={}{drift}", if local { "localtime" } else { "utc" }));
    if windows.is_some() {
        add("-global", "kvm-pit.lost_tick_policy=discard".to_owned());
    }
    // Its QMP socket has the guest's number.
    let disks = || keys.iter().filter(|(key, _)| DISK.is_match(key));
    let ids: BTreeSet<&str> = disks().filter_map(|(_, value)| group(&VOLUME.captures(volume(value))?, "id")).collect();
    let id = ids.first().filter(|_| ids.len() == 1).unwrap_or(&UNKNOWN_ID);
    add("-qmp", format!("unix:/var/run/qemu-server/{id}.qmp,server"));
    let scsihw = get("scsihw").or(is_whole.then_some(DEFAULT_SCSIHW));
    for (key, value) in keys {
        if DISK.is_match(key) {
            disk(key, value, scsihw, &mut add);
        } else if let Some(card) = network_card(key, value) {
            add("-device", card);
        }
    }
    // Proxmox adds it with the first disk.
    if get("scsihw").is_some_and(|model| model.starts_with("virtio-scsi")) {
        add("-device", "virtio-scsi-pci,id=scsihw0".to_owned());
    }
    // Without `numa: 1` Proxmox ignores the cells.
    for (key, value) in keys.iter().filter(|_| get("numa") == Some("1")) {
        if let Some(id) = key.strip_prefix("numa").and_then(|id| id.parse::<u32>().ok()) {
            let [memory, cell] = cell(id, value);
            add("-object", memory);
            add("-numa", cell);
        }
    }
    argv.extend(shell_words(get("args").unwrap_or_default()));
    argv
}

/// Limits of a disk: Proxmox's name, QEMU's name, QEMU's units in a unit of Proxmox.
const LIMITS: [(&str, &str, f64); 6] = [
    ("mbps", "bps-total", 1_048_576.0),
    ("mbps_rd", "bps-read", 1_048_576.0),
    ("mbps_wr", "bps-write", 1_048_576.0),
    ("iops", "iops-total", 1.0),
    ("iops_rd", "iops-read", 1.0),
    ("iops_wr", "iops-write", 1.0),
];

/// The drive and the device of a disk: `scsi0: local-lvm:vm-100-disk-0,aio=native,iothread=1,size=32G`.
fn disk(key: &str, value: &str, scsihw: Option<&str>, add: &mut impl FnMut(&str, String)) {
    let has = |name: &str| value.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let volume = volume(value);
    if volume == "none" || volume.ends_with("cloudinit") || has("media") == Some("cdrom") {
        return;
    }
    // Without another mode Proxmox opens disks past the host's page cache.
    let cache = has("cache").unwrap_or("none");
    let mut drive = format!("file={volume},if=none,id=drive-{key},cache={cache}");
    drive.extend(has("aio").map(|aio| format!(",aio={aio}")));
    for (proxmox_name, qemu_name, units) in LIMITS {
        let limit = has(proxmox_name).and_then(|text| text.parse::<f64>().ok());
        drive.extend(limit.map(|limit| format!(",throttling.{qemu_name}={}", (limit * units) as u64)));
    }
    add("-drive", drive);
    let is_scsi = key.starts_with("scsi");
    let driver = match key {
        _ if is_scsi => "scsi-hd",
        _ if key.starts_with("virtio") => "virtio-blk-pci",
        _ => "ide-hd",
    };
    let mut device = format!("{driver},drive=drive-{key},id={key}");
    let has_controller = driver == "virtio-blk-pci" || is_scsi && scsihw.is_some();
    if has("iothread") == Some("1") && has_controller {
        // Where Proxmox ignores the option it adds no object.
        device += &format!(",iothread=iothread-{key}");
        if !is_scsi || scsihw == Some("virtio-scsi-single") {
            add("-object", format!("iothread,id=iothread-{key}"));
        }
    }
    add("-device", device);
    if let Some(model) = scsihw.filter(|model| is_scsi && !model.starts_with("virtio")) {
        // Proxmox's `lsi` is QEMU's lsi53c895a.
        add("-device", format!("{},id=scsihw", if model == "lsi" { "lsi53c895a" } else { model }));
    }
}

/// The volume of a disk.
fn volume(value: &str) -> &str {
    value.split(',').next().unwrap_or_default().trim_start_matches("file=")
}

/// The device of a network card that has its link up: `net0: e1000=BC:24:11:00:00:01,bridge=vmbr0`.
fn network_card(key: &str, value: &str) -> Option<String> {
    key.strip_prefix("net").filter(|number| number.bytes().all(|b| b.is_ascii_digit()))?;
    let model = value.split(',').next()?.trim_start_matches("model=").split('=').next()?;
    let model = if model == "virtio" { "virtio-net-pci" } else { model };
    (!value.contains("link_down=1")).then(|| format!("{model},id={key}"))
}

/// The memory and the CPUs of a NUMA cell: `cpus=0-3;8,hostnodes=0-1,memory=4096,policy=bind`.
fn cell(id: u32, value: &str) -> [String; 2] {
    let part = |name: &str| value.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let list = |name: &str, option: &str| -> String {
        part(name).into_iter().flat_map(|list| list.split(';')).flat_map(|part| [",", option, "=", part]).collect()
    };
    let nodes = match list("hostnodes", "host-nodes") {
        nodes if nodes.is_empty() => nodes,
        nodes => format!("{nodes},policy={}", part("policy").unwrap_or("preferred")),
    };
    [
        format!("memory-backend-ram,id=ram-node{id},size={}M{nodes}", part("memory").unwrap_or("0")),
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
fn cpu(keys: &BTreeMap<&str, &str>, windows: Option<u32>, is_whole: bool) -> String {
    let text = keys.get("cpu").copied().unwrap_or(if is_whole { DEFAULT_CPU } else { "" });
    let mut parts = text.split(',');
    let mut cpu = parts.next().unwrap_or_default().trim_start_matches("cputype=").to_owned();
    let early_uefi = keys.get("bios") == Some(&"ovmf") && windows.is_some_and(|version| version < 8);
    if windows.is_some_and(|version| version >= 6) && !early_uefi {
        cpu.push_str(",hv_spinlocks=0x1fff,hv_vapic,hv_time,hv_reset,hv_vpindex,hv_runtime");
        if windows >= Some(7) {
            cpu.push_str(",hv_relaxed,hv_synic,hv_stimer,hv_ipi");
        }
    }
    for part in parts {
        match part.split_once('=') {
            // `flags=+pcid;-spec-ctrl`
            Some(("flags", flags)) => flags.split(';').for_each(|flag| cpu.push_str(&format!(",{flag}"))),
            Some(("hidden", "1")) => cpu.push_str(",kvm=off"),
            Some(("hv-vendor-id", id)) => cpu.push_str(&format!(",hv_vendor_id={id}")),
            _ => {}
        }
    }
    cpu
}

#[cfg(test)]
mod tests;
